"""KVR311: requests wait for a place in the batch, while the KV cache has room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.serving.common import load_of, said

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR311",
    "sequences-limit",
    Severity.WARNING,
    "Requests wait because max_num_seqs run already, and less than half of the KV cache is in use.",
    explanation(
        what="""
            Looks for lines of statistics in which requests wait, the KV cache is less than half full, and always
            the same number runs: `max_num_seqs`.
            """,
        why="""
            `--max-num-seqs` caps how many requests are computed in one step.
            Where the cap is reached before the KV cache is full, memory that was set aside for it does nothing, and
            the waiting requests see their first token late.
            A larger batch costs each request a little speed and gives more throughput, until the GPU computes at
            its limit.
            """,
        example="""
            `Running: 4 reqs, Waiting: 30 reqs, GPU KV cache usage: 7.9%`, line after line, with
            `--max-num-seqs 4`.
            """,
        cure="""
            Raise `--max-num-seqs`.
            It takes memory for the sampler and for CUDA graphs, a few MiB a sequence with large vocabularies.
            """,
        since="All releases; the default is 256, since 0.8.5 up to 1024 depending on the card.",
        references="`vllm/config/scheduler.py: max_num_seqs`, `vllm/v1/core/sched/scheduler.py: schedule`",
    ),
)
_LEAST = 3
"""Lines that must show it: a single one may be a moment after many arrivals."""
_MOST = 1024


def find(case: Case) -> Iterator[Finding]:
    """The finding where the limit, or a number that never changes, is reached with room to spare."""
    load, limit = load_of(case), case.whole("max_num_seqs")
    ran, moment = load.idle_running, load.evidence.get("idle_and_waiting")
    if moment is None or load.idle_at_most < _LEAST:
        return
    if limit is not None and ran != limit:
        return
    if load.idle_at_most < load.idle_and_waiting * (0.5 if limit is not None else 0.9):
        return
    if case.reading.load.full_and_waiting:
        return
    what = f"max_num_seqs is {limit:,}" if limit is not None else f"the number that run stays at {ran:,}"
    use = moment.kv_percent or 0.0
    room = int(ran * 50 / use) if use else 2 * ran
    advice = f"--max-num-seqs {min(max(2 * ran, room // 8 * 8), max(_MOST, 2 * ran))}"
    yield RULE.found(
        f"{moment.waiting:,} request{'s wait' if moment.waiting > 1 else ' waits'} while {use:.1f}% of the KV cache is"
        f" in use: {what}.",
        f"It is so in {load.idle_at_most:,} of {load.count:,} lines of statistics. The cap on running requests is"
        " reached long before the KV cache is full.",
        evidence=said(moment),
        advice=(advice,),
        severity=Severity.NOTE if case.asked("max_num_seqs") is not None else None,
    )
