"""KVR303: running requests lose their KV cache to others and are computed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.serving.common import full_requests, load_of, more_room, pool_text, said
from kvroom.findings.startup.common import first, utilization_of

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR303",
    "running-requests-preempted",
    Severity.WARNING,
    "More requests run than the KV cache can hold to their end, so some are thrown out and computed again.",
    explanation(
        what="""
            Counts preemptions: V1 prints them in its line of statistics since 0.11.1, V0 warns of the first and
            of every 50th.
            """,
        why="""
            A request starts as soon as its prompt fits, and grows by a token a step.
            When the pool is full, the scheduler takes the blocks of the request that came last and computes its
            prompt and everything generated so far once more, later.
            The work is done twice, and the tokens of that request pause.
            A few preemptions cost little; a steady stream lowers throughput just when load is highest.
            """,
        example="""
            A pool of 2,162 tokens holds 16.9 requests of 128 tokens; with 32 at once, 24 were preempted.
            """,
        cure="""
            Let fewer run at once (`--max-num-seqs` at the concurrency that the pool holds), or give the pool more
            room: higher utilisation, an 8-bit KV cache, more GPUs.
            """,
        since="""
            All releases.
            V1 before 0.11.1 preempts without a word in the log; the counter `vllm:num_preemptions` has it in all.
            """,
        references="`vllm/v1/core/sched/scheduler.py: schedule`, V0 `vllm/core/scheduler.py: _preempt`",
    ),
)
_NEARLY_FULL = 90.0
_FEW = 0.1
"""Preemptions for each line of statistics, that is in ten seconds, up to which they cost next to nothing."""

_MUCH_IDLE = 0.8
"""Utilisation below which the card itself has much room to give."""


def find(case: Case) -> Iterator[Finding]:
    """The finding with the number of preemptions and what the pool holds."""
    count, evidence = _count(case)
    if count is None:
        yield from _silent(case)
        return
    load, held = load_of(case), full_requests(case)
    at_once = case.whole("max_num_seqs") or load.most_running or None
    fewer = None
    if held is not None and held >= 1 and (at_once is None or held < at_once):
        fewer = f"--max-num-seqs {int(held)} (as many requests of the full length as the pool holds)"
    ran = f" Up to {load.most_running} ran at once." if load.most_running else ""
    rare = load.count >= 20 and 0 < count <= load.count * _FEW
    times = f"{count:,} preemption{'s' if count > 1 else ''}: each time" if count else "Preemptions: time and again"
    yield RULE.found(
        f"{times} a running request loses its KV cache and starts over.",
        f"{pool_text(case)}{ran} A request is let in when its prompt fits, and grows until the pool is full.".strip(),
        evidence=evidence,
        advice=first(_advice(case, fewer)),
        severity=Severity.NOTE if rare else None,
    )


def _advice(case: Case, fewer: str | None) -> Iterator[str]:
    """Room that lies idle first, then fewer at once, then room that costs something."""
    share, room = utilization_of(case), more_room(case)
    fewer = fewer or "A lower --max-num-seqs."
    yield from (*room[:1], fewer, *room[1:]) if share is not None and share < _MUCH_IDLE else (fewer, *room)


def _count(case: Case) -> tuple[int | None, tuple[Evidence, ...]]:
    """How many preemptions the log shows, 0 where it shows some and no number; None where it shows none."""
    load, facts = load_of(case), case.reading.facts
    if load.preemptions:
        return load.preemptions, said(load.evidence.get("preemptions"))
    warned = facts.last("preempted_v0")
    if warned is not None:
        totals = [fact.whole("total") or 0 for fact in facts.all("preempted_v0")]
        return max(totals), (shown(warned),)
    told = facts.first("told_preemptions")
    if told is not None and (number := told.whole("preemptions")):
        return number, (shown(told),)
    return None, ()


def _silent(case: Case) -> Iterator[Finding]:
    """The note on a nearly full pool of an engine that does not log its preemptions."""
    load = load_of(case)
    busiest = load.busiest
    if busiest is None or (busiest.kv_percent or 0) < _NEARLY_FULL or load.full_and_waiting:
        return
    if case.since("0.11.1") or case.reading.engine == "V0" or (case.since("0.7.1") is False):
        return
    yield RULE.found(
        f"The KV cache was {busiest.kv_percent:.1f}% full; V1 before 0.11.1 does not log the preemptions that follow.",
        f"{pool_text(case)} With a full pool a running request loses its cache and is computed again.".strip(),
        evidence=said(busiest),
        advice=first(("The counter vllm:num_preemptions at /metrics tells.", *more_room(case))),
        severity=Severity.NOTE,
    )
