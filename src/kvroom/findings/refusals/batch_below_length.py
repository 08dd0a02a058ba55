"""KVR242: fewer tokens in a batch than one sequence, one image or all sequences need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR242",
    "batched-tokens-below-length",
    Severity.ERROR,
    "max_num_batched_tokens is smaller than what has to fit into one step.",
    explanation(
        what="""
            Reads the refusals that compare `max_num_batched_tokens` with `max_model_len`, with `max_num_seqs`,
            or with the tokens of one image or video.
            """,
        why="""
            Without chunked prefill a prompt runs in one step, so a step must hold the longest one.
            Every running sequence needs a token in each step, and without chunked multimodal input an item
            must fit into one step as a whole.
            """,
        example="`--no-enable-chunked-prefill --max-num-batched-tokens 2048 --max-model-len 8192`.",
        cure="""
            Let chunked prefill split prompts (the default of the V1 engine), or raise
            `--max-num-batched-tokens`, which costs activation memory, or lower the other limit.
            """,
        since="All releases; the limit for items since vLLM 0.8.4.",
        references="""
            `vllm/config/scheduler.py: SchedulerConfig`, `vllm/v1/core/encoder_cache_manager.py`
            """,
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the two numbers."""
    fact = cause(case, "err_batched", "err_batched_seqs", "err_mm_item")
    budget = fact.whole("max_num_batched_tokens") if fact else None
    if fact is None or not budget:
        return
    kind = {"err_batched": _length, "err_batched_seqs": _sequences, "err_mm_item": _item}[fact.id]
    title, why, advice = kind(case, fact, budget)
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice)


def _length(case: Case, fact: Fact, budget: int) -> tuple[str, str, list[str]]:
    length = fact.whole("max_model_len") or 0
    advice = [f"--max-num-batched-tokens {length}", f"--max-model-len {budget}"]
    if case.setting("enable_chunked_prefill") is False:
        advice.insert(0, "Drop --no-enable-chunked-prefill: long prompts then take several steps.")
    elif case.since("0.8.0") is not True:
        advice.insert(0, "--enable-chunked-prefill")
    return (
        f"A step takes {budget:,} tokens, and a prompt of max_model_len {length:,} does not fit.",
        "Chunked prefill is off (or the model cannot do it), so that a prompt has to run in one step.",
        advice,
    )


def _sequences(case: Case, fact: Fact, budget: int) -> tuple[str, str, list[str]]:  # noqa: ARG001
    sequences = fact.whole("max_num_seqs") or 0
    return (
        f"A step takes {budget:,} tokens, fewer than one for each of max_num_seqs {sequences:,}.",
        "Every running sequence adds a token in each step.",
        [f"--max-num-seqs {budget}", f"--max-num-batched-tokens {sequences}"],
    )


def _item(case: Case, fact: Fact, budget: int) -> tuple[str, str, list[str]]:
    item = fact.whole("item") or 0
    advice = [f"--max-num-batched-tokens {item}"]
    if case.setting("disable_chunked_mm_input"):
        advice.insert(0, "Drop --disable-chunked-mm-input: an item then takes several steps.")
    advice.append("Limit the size of an item in --mm-processor-kwargs (max_pixels on Qwen-VL models).")
    return (
        f"One image or video may take {item:,} tokens, and a step takes {budget:,}.",
        "Multimodal input is not chunked here, so that an item has to fit into one step.",
        advice,
    )
