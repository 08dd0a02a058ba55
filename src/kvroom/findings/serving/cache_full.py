"""KVR304: the KV cache is full while requests wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.serving.common import load_of, more_room, pool_text, said

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR304",
    "kv-full-requests-waiting",
    Severity.WARNING,
    "The KV cache is what limits this server: it is full, and requests wait for room in it.",
    explanation(
        what="""
            Looks for lines of statistics with a KV cache use of 95% or more while requests run and others wait.
            """,
        why="""
            A waiting request starts only when blocks become free.
            Its time to the first token then depends on how long the running requests take, not on the GPU.
            """,
        example="""
            `Running: 247 reqs, Pending: 740 reqs, GPU KV cache usage: 99.7%`: three quarters of the requests
            wait for room.
            """,
        cure="""
            Give the pool more room: higher utilisation, an 8-bit KV cache, more GPUs or another replica.
            `--max-model-len` does not change the pool, and a higher `--max-num-seqs` only leads to preemptions.
            """,
        since="All releases.",
        references="`vllm/v1/core/sched/scheduler.py: schedule`, `vllm/v1/metrics/loggers.py`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the worst moment and how often it was so."""
    load = load_of(case)
    moment = load.evidence.get("full_and_waiting")
    if moment is None or not load.full_and_waiting:
        return
    waiting = f"{moment.waiting:,} request{'s wait' if moment.waiting > 1 else ' waits'}"
    often = f" It is so in {load.full_and_waiting:,} of {load.count:,} lines of statistics." if load.count > 1 else ""
    yield RULE.found(
        f"The KV cache is {moment.kv_percent:.1f}% full while {waiting} and {moment.running:,} run.",
        f"{pool_text(case)} What waits starts when a running request ends.{often}".strip(),
        evidence=said(moment),
        advice=more_room(case)[:4],
    )
