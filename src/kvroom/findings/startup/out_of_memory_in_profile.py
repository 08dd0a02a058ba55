"""KVR206: the GPU ran out of memory in the profile run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import first, lighter_batch, more_ranks, served
from kvroom.findings.startup.oom import Oom, anatomy, defragment, ooms, profiles_graphs, weights_fill_it
from kvroom.units import GIB, MIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR206",
    "out-of-memory-in-profile",
    Severity.ERROR,
    "The trial run with the largest batch needs more than the weights leave of the card.",
    explanation(
        what="""
            Reports an out-of-memory error between the loading of the weights and the sizing of the KV cache:
            in the profile run, or in the compilation that happens inside it.
            """,
        why="""
            vLLM computes one batch of the largest size to see how much it needs besides the weights.
            The size is `max_num_batched_tokens` (without chunked prefill the whole context), the sampler works
            on `max_num_seqs` rows of the vocabulary, and vision models encode their largest images.
            No KV cache exists yet, so `--gpu-memory-utilization` does not matter: the trial run may use the
            whole card.
            """,
        example="""
            22.18 GiB in total, 18.29 GiB of weights, and one buffer of 4.00 GiB for the images of a batch.
            """,
        cure="""
            Lower what the trial run computes: `--max-num-batched-tokens`, `--max-num-seqs`,
            `--limit-mm-per-prompt` or smaller images (`--mm-processor-kwargs`).
            Else make the weights smaller: more GPUs, a quantised checkpoint.
            """,
        since="""
            All releases.
            With V1 in 0.8.0 the default of `max_num_seqs` went from 256 to 1024 on large cards, and with it
            the sampler's share.
            """,
        references="`vllm/v1/worker/gpu_model_runner.py: profile_run`, V0 `vllm/worker/model_runner.py: profile_run`",
    ),
)


_SMALL = 64 * MIB
"""A piece of a CUDA graph at most."""


def find(case: Case) -> Iterator[Finding]:
    """The finding for an out-of-memory error before the cache is sized, certain or by its size alone."""
    if profiles_graphs(case) or case.reading.facts.first("err_sampler"):
        return
    for oom in ooms(case, "profile", "compile"):
        what = "compiling" if oom.stage == "compile" else "profiling"
        yield RULE.found(
            f"Out of memory while {what}: {_numbers(oom)}.",
            " ".join(filter(None, (anatomy(oom), _driver(case)))),
            evidence=(shown(oom.fact),),
            advice=_advice(case, oom),
        )
        return
    for oom in ooms(case, "unknown"):
        if oom.wanted is None or oom.wanted <= _SMALL or oom.private or served(case) or weights_fill_it(case, oom):
            continue
        large = oom.wanted >= GIB
        guess = (
            "Buffers of that size belong to a batch of prompts or images, as in the profile run."
            if large
            else "The steps that take pieces of that size compute a batch: the profile run, or the warm-up after it."
        )
        piece = f"{show_bytes(oom.wanted)} in one piece is an activation" if large else _numbers(oom)
        yield RULE.found(
            f"Out of memory with no line that says where; {piece}.",
            f"{anatomy(oom)} {guess}",
            evidence=(shown(oom.fact),),
            advice=_advice(case, oom),
            severity=Severity.WARNING,
        )


def _numbers(oom: Oom) -> str:
    if oom.wanted is None:
        return "the GPU is full"
    free = f", {show_bytes(oom.free)} was free" if oom.free is not None else ""
    return f"{show_bytes(oom.wanted)} was asked for{free}"


def _driver(case: Case) -> str:
    """What sets the size of the trial run."""
    ledger = case.prediction.ledger if case.prediction is not None else None
    cause = ledger.activation.cause if ledger else ""
    sequences, tokens = case.whole("max_num_seqs"), case.whole("max_num_batched_tokens")
    if cause == "encoder" or case.reading.facts.first("encoder_budget"):
        return "The trial run encodes the largest images that the model accepts."
    if cause == "sampler" and sequences:
        return f"The sampler's buffers for {sequences:,} sequences are the peak."
    if tokens:
        return f"The trial run computes {tokens:,} tokens at once."
    return "No KV cache exists yet, so --gpu-memory-utilization has no part in this."


def _advice(case: Case, oom: Oom) -> tuple[str, ...]:
    others = oom.elsewhere
    return first(
        (
            f"Stop the other programs on the card: they hold {show_bytes(others)}."
            if others and others > GIB // 2
            else None,
            *defragment(case, oom),
            *lighter_batch(case),
            more_ranks(case),
        )
    )
