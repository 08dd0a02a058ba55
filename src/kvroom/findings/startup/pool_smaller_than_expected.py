"""KVR212: the KV cache is smaller than the rules or another start lead to expect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import first, pinned_bytes
from kvroom.ledger.entries import Basis
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR212",
    "pool-smaller-than-expected",
    Severity.WARNING,
    "Less memory was left for the KV cache than this model, card and release explain.",
    explanation(
        what="""
            Compares what the log says was left for the KV cache with the range that is predicted for the same
            launch, and reports a log that shows two sizes of the cache for one launch.
            """,
        why="""
            A prediction with its uncertainty is known for weights, activations and the rest.
            What goes beyond it by more than the width of the range has another cause: memory of other
            programs counted as the engine's own, a fallback kernel with larger weights, an estimate of CUDA
            graphs that is far too high, or a change between releases.
            """,
        example="""
            After an update the same command has 112 blocks instead of 1,464.
            """,
        cure="""
            Look at which part is larger than predicted.
            Stop other programs, compare the release's notes on profiling, or fix the size with
            `--kv-cache-memory-bytes`.
            """,
        since="All releases.",
        references="`vllm/v1/worker/gpu_worker.py: determine_available_memory`",
    ),
)
_MARGIN = GIB // 2
_PARTS = ("weights", "activation", "other")


def find(case: Case) -> Iterator[Finding]:
    """The finding by the prediction, else by two sizes in one log."""
    yield from _below_prediction(case)
    yield from _two_sizes(case)
    yield from _changed(case)


def _changed(case: Case) -> Iterator[Finding]:
    """The finding for a line that says how the cache grew when something was left out."""
    fact = case.reading.facts.last("told_pool_change")
    before, after = (fact.whole("tokens"), fact.whole("tokens_after")) if fact else (None, None)
    if fact is None or not before or not after or after < 1.25 * before:
        return
    estimate = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS" in fact.text
    cause = "The estimate of CUDA graph memory takes the difference" if estimate else "One setting makes the difference"
    yield RULE.found(
        f"The KV cache has {before:,} tokens where {after:,} are possible ({before / after:.0%}).",
        f"{cause} of {after - before:,} tokens.",
        evidence=(shown(fact),),
        advice=first(
            (
                "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 (with a utilisation that leaves the graphs room)"
                if estimate
                else None,
                "Lower --max-cudagraph-capture-size: fewer graphs are counted." if estimate else None,
            )
        ),
    )


def _below_prediction(case: Case) -> Iterator[Finding]:
    prediction, available = case.prediction, case.reading.measured.get("available")
    ledger = prediction.ledger if prediction is not None else None
    if ledger is None or available is None or available.value <= 0 or pinned_bytes(case):
        return
    entry = ledger.available
    if entry.basis is Basis.MEASURED or entry.low <= 0:
        return
    width = max((entry.high - entry.low) // 2, _MARGIN)
    missing = entry.low - available.value
    if missing <= width:
        return
    parts = []
    for name in _PARTS:
        logged, predicted = case.reading.size(name), ledger.entry(name)
        if logged is not None and logged > predicted.high + _MARGIN:
            parts.append(f"{name} is {show_bytes(logged)}, predicted {show_bytes(predicted.expected)}")
    why = f"It is {show_bytes(missing)} below the low end of the prediction."
    why += f" Larger than predicted: {'; '.join(parts)}." if parts else ""
    line = next((fact for fact in case.reading.facts if fact.line == available.line), None)
    total = case.total_bytes or 0
    yield RULE.found(
        f"{show_bytes(available.value)} is left for the KV cache, where {show_bytes(entry.low)} to "
        f"{show_bytes(entry.high)} is predicted.",
        why,
        evidence=(shown(line),) if line else (),
        advice=first(
            (
                "Check that nothing else uses the card (nvidia-smi) and start again."
                if missing > total // 50 or not parts
                else None,
                f"--kv-cache-memory-bytes {entry.low} (once that much is free)" if case.since("0.10.2") else None,
            )
        ),
    )


def _two_sizes(case: Case) -> Iterator[Finding]:
    """The finding for one process that prints two numbers of blocks; ranks and stages may differ, one may not."""
    facts = case.reading.facts.all("blocks_v1")
    counts = {count: fact for fact in facts if (count := fact.whole("blocks")) and fact.process == facts[0].process}
    if len(counts) < 2:
        return
    most, least = max(counts), min(counts)
    if most < 1.5 * least or counts[least].line < counts[most].line or case.reading.facts.first("override"):
        return
    yield RULE.found(
        f"The log shows {least:,} KV cache blocks where it had {most:,} before.",
        f"That is {least / most:.0%} of it. With the same flags, the release's way of counting or memory that "
        "another program holds is what differs.",
        evidence=(shown(counts[most]), shown(counts[least])),
        advice=(
            "Check that nothing else uses the card (nvidia-smi) and start again.",
            "Compare the two releases, or go back to the one before.",
        ),
    )
