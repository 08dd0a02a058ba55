"""KVR205: the free memory grew, or did not shrink, while vLLM measured its own use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import first, unified
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR205",
    "memory-freed-while-profiling",
    Severity.ERROR,
    "Another program released memory while vLLM measured its own use, so that the measurement is void.",
    explanation(
        what="""
            Reports the check after the profile run that less memory is free than at the start; on ROCm since
            0.29 the warning that takes its place.
            """,
        why="""
            vLLM computes its use from the difference of the free memory.
            When another process ends in between, the difference is too small or negative, and the KV cache
            would be made too large.
            Two servers started at the same moment on one card do this to each other, and so does an engine of
            before that is just going away.
            On unified memory the page cache does it without any other program.
            Two equal numbers mean that the platform does not report free memory at this grain: the check wants
            less, not the same.
            """,
        example="Initially 20.1 GiB were free, after profiling 24.3 GiB: somebody gave back more than vLLM took.",
        cure="""
            Start again when nothing else changes on the card; start several servers one after the other.
            `--kv-cache-memory-bytes` (0.10.2 and later) sizes the cache without the measurement.
            """,
        since="All releases; the numbers are bytes up to 0.9.0 and GiB since 0.9.1.",
        references="`vllm/v1/worker/gpu_worker.py: determine_available_memory`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding for the failed check, or the warning of ROCm."""
    facts = case.reading.facts
    error = facts.last("err_freed")
    fixed = "Size the cache with --kv-cache-memory-bytes: it is not measured, so not disturbed."
    fixed_flag = fixed if case.since("0.10.2") is not False else None
    again = "Start again once nothing else starts or stops on the card."
    if error is not None and not case.reading.came_up:
        initial, current = _bytes(error, "initial"), _bytes(error, "current")
        same = initial is not None and initial == current
        yield RULE.found(
            _title(initial, current, same),
            _why(case, same),
            evidence=(shown(error),),
            advice=first(
                ("A newer release: the check was relaxed to accept equal values.", fixed_flag)
                if same
                else (again, fixed_flag)
            ),
        )
        return
    grown = facts.last("freed_rocm")
    if grown is not None:
        size = show_bytes(grown.gib("gib") or 0)
        yield RULE.found(
            f"{size} became free during profiling: the KV cache size rests on an estimate.",
            evidence=(shown(grown),),
            advice=first((again, fixed_flag)),
            severity=Severity.WARNING,
        )


def _title(initial: int | None, current: int | None, same: bool) -> str:
    if initial is None or current is None:
        return "More memory was free after the profile run than at the start."
    if same:
        return f"{show_bytes(initial)} was free before and after the profile run; vLLM wants it to have become less."
    grown = show_bytes(current - initial)
    return f"Free memory grew from {show_bytes(initial)} to {show_bytes(current)} while vLLM profiled: {grown} more."


def _why(case: Case, same: bool) -> str:
    if same:
        return (
            "The comparison is strict, and this platform reports the same number twice (or the change is below the "
            "printed decimals): no other program need be involved."
        )
    if unified(case):
        return "The memory is shared with the CPU; a page cache that shrinks is enough to make it grow."
    return "Another process gave memory back in between, so vLLM cannot tell how much it uses itself."


def _bytes(fact: Fact, name: str) -> int | None:
    """The value in bytes: old releases print bytes, newer ones GiB."""
    number = fact.number(name)
    if number is None:
        return None
    return round(number) if number > GIB // 1024 else round(number * GIB)
