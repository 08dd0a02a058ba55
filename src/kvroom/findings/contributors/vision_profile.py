"""KVR222: profiling the vision encoder takes memory from the KV cache."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import (
    argument,
    estimating_graphs,
    model_names,
    multimodal,
    on_gpu,
    overflow,
    shortage,
)
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.logs.reading import State
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR222",
    "vision-profile",
    Severity.WARNING,
    "A multimodal model is profiled with the largest images or videos that it accepts.",
    explanation(
        what="""
            Reports a multimodal model that ran short of memory while or after its encoder was profiled with
            items of the largest size.
            """,
        why="""
            Before the KV cache is sized, vLLM encodes the largest item of the greediest kind (often a video)
            and keeps the result while it profiles the language model.
            That peak comes off the KV cache, also where only text is served; `gpu_memory_utilization` does
            not limit it.
            The V0 engine does so with the worst images for every sequence.
            """,
        example="""
            A 3B vision model with `--gpu-memory-utilization 0.3` of an 80 GB card has nothing left for its
            cache: 16,384 image tokens are profiled.
            """,
        cure="""
            For text only switch the kinds off: `--limit-mm-per-prompt '{"image": 0, "video": 0}'`, or
            `--language-model-only` since 0.17. For images leave videos out, and cap the size with
            `--mm-processor-kwargs` (not in the client: the profile does not see that).
            `--skip-mm-profiling` leaves the encoder out of the measurement; the first large image may then run
            out of memory.
            """,
        since="All releases; `--skip-mm-profiling` since 0.10.2, `--language-model-only` since 0.17.1.",
        references="`vllm/v1/worker/gpu_model_runner.py: profile_run`, `vllm/multimodal/profiling.py`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding where memory ran short, weaker where a long context explains it as well."""
    budget = case.reading.facts.last("encoder_budget")
    if not on_gpu(case) or not multimodal(case) or _switched_off(case):
        return
    lack, taken = shortage(case), _peak(case)
    over = None if estimating_graphs(case) else overflow(case, "profile", "compile")
    told = case.reading.facts.first("told_vision")
    fact: Fact | None
    if over is not None:
        fact, severity, end = over, Severity.WARNING, "and ran out of memory there"
    elif lack is not None and lack.nothing:
        fact, severity, end = lack.fact, Severity.WARNING, "and nothing is left for the KV cache"
    elif lack is not None:
        decides = taken is not None and taken >= GIB and taken * 10 >= (lack.missing or 0)
        severity = Severity.WARNING if decides else Severity.NOTE
        fact, end = lack.fact, "before the KV cache gets the rest, which is too little"
    elif told is not None:
        severity = Severity.NOTE if case.reading.came_up else Severity.WARNING
        fact, end = told, "and what they encode to is reserved"
    elif budget is not None and case.reading.state is State.UNFINISHED and case.reading.stage in {"profile", "compile"}:
        fact, severity, end = None, Severity.NOTE, "and the log ends there"
    else:
        return
    basis = "peaks" if case.reading.size("activation") is not None else "is predicted to peak"
    size = f" The profile run {basis} at {show_bytes(taken)}." if taken else ""
    kind = f"{_items(budget)} of the largest size" if budget else "images or videos of the largest size"
    yield RULE.found(
        f"The model's encoder is profiled with {kind}, {end}.",
        f"What the encoder takes for its largest input comes off the KV cache, even if only text is served.{size}",
        evidence=[shown(found) for found in (budget, fact) if found is not None],
        advice=_advice(case, budget),
        severity=severity,
    )


def _switched_off(case: Case) -> bool:
    if case.reading.facts.first("encoder_skip") or argument(case, "language_model_only") is True:
        return True
    limits: Any = argument(case, "limit_mm_per_prompt")
    return isinstance(limits, Mapping) and bool(limits) and all(value == 0 for value in limits.values())


def _peak(case: Case) -> int | None:
    """The activation peak as logged, else as predicted where the encoder decides it."""
    logged = case.reading.size("activation")
    if logged is not None:
        return logged
    ledger = case.prediction.ledger if case.prediction is not None else None
    return ledger.activation.expected if ledger is not None and ledger.activation.cause == "encoder" else None


def _items(budget: Fact) -> str:
    count = budget.whole("items")
    modality = budget.values["modality"]
    return f"{count} {modality} item{'s' if count != 1 else ''}" if count is not None else f"{modality} items"


def _advice(case: Case, budget: Fact | None) -> Iterator[str]:
    if case.reading.facts.first("told_vision") is not None:
        yield "--mm-processor-kwargs '{\"max_pixels\": 1003520}' (the profile run does not see a client's own limit)"
    plain = case.since("0.8.0") is False
    if case.since("0.17.1"):
        yield "--language-model-only (if only text is served)"
    else:
        off = "image=0,video=0" if plain else '\'{"image": 0, "video": 0}\''
        yield f"--limit-mm-per-prompt {off} (if only text is served)"
    if budget is not None and budget.values["modality"] == "video" and not plain:
        yield '--limit-mm-per-prompt \'{"image": 1, "video": 0}\' (if no videos are served)'
    elif re.search(r"qwen2(\.5)?-?(vl|omni)", model_names(case)):
        yield "--mm-processor-kwargs '{\"max_pixels\": 1003520}' (caps an image at 1,280 tokens)"
    if case.since("0.10.2"):
        yield "--skip-mm-profiling (leaves the encoder unmeasured: the first large image may run out of memory)"
    elif case.reading.engine == "V0":
        yield "A lower --max-num-seqs: V0 profiles the images of every sequence."
