"""KVR305: a request waits forever, because the KV cache can never hold it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.serving.common import load_of, more_room, pool_text, said
from kvroom.findings.startup.common import first

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR305",
    "request-never-scheduled",
    Severity.ERROR,
    "A request waits and nothing runs: the KV cache can never hold it.",
    explanation(
        what="""
            Looks for consecutive lines of statistics with requests waiting, none running and no token computed,
            for the warnings with which V0 drops a request, and for reports that say so in words.
            """,
        why="""
            The check at start-up asks whether one request of `max_model_len` fits.
            Where that is estimated too well (sliding windows, hybrid models, blocks fixed by hand, a reserve for
            other requests), a request within `max_model_len` may need more blocks than there are.
            The scheduler keeps it first in line, and everything behind it waits as well.
            With nothing computed vLLM logs its statistics at level DEBUG only: the lines may stop.
            """,
        example="""
            `Running: 0 reqs, Waiting: 3 reqs, GPU KV cache usage: 0.0%`, line after line, and no tokens.
            """,
        cure="""
            Lower `--max-model-len` below what the pool holds, so that such a request is refused at once, or give
            the pool more room.
            Requests that wait for something else (an adapter, a transfer, a grammar) are printed as deferred.
            """,
        since="All releases; V0 drops the request with a warning and an empty answer.",
        references="`vllm/v1/core/sched/scheduler.py: schedule`, V0 `vllm/core/scheduler.py: _schedule_prefills`",
    ),
)
_SURE = 3
"""Lines in a row, half a minute, after which it is no long step."""


def find(case: Case) -> Iterator[Finding]:
    """The finding with how long nothing has run, or with V0's own words."""
    facts, load = case.reading.facts, load_of(case)
    pool = case.reading.pool
    told = facts.first("told_never")
    dropped = facts.first("never_fits_v0")
    why = "A request that needs more blocks than there are stays first in line, and the others wait behind it."
    if load.stuck >= 2 and (moment := load.stuck_since) is not None:
        waiting = f"{moment.waiting:,} request{'s' if moment.waiting > 1 else ''}"
        title = f"{waiting} waiting and none running in the last {load.stuck} lines of statistics: never scheduled."
        evidence, severity = said(moment), Severity.ERROR if load.stuck >= _SURE else Severity.WARNING
    elif dropped is not None:
        tokens = dropped.whole("tokens")
        what = f"A prompt of {tokens:,} tokens" if tokens else "A request"
        title = f"{what} was dropped: the KV cache cannot hold it."
        why = "V0 leaves out what can never fit, and the client gets an empty answer."
        evidence, severity = (shown(dropped),), Severity.WARNING
    elif told is not None:
        title = "A request within max_model_len is never scheduled: the KV cache cannot hold it."
        evidence, severity = (shown(told),), Severity.ERROR
    else:
        return
    shorter = None
    if pool.tokens and pool.max_model_len and pool.tokens < pool.max_model_len:
        shorter = f"--max-model-len {pool.tokens // 16 * 16}"
    yield RULE.found(
        title,
        f"{pool_text(case)} {why}".strip(),
        evidence=evidence,
        advice=first(
            (shorter or "A lower --max-model-len, so that such requests are refused at once.", *more_room(case))
        ),
        severity=severity,
    )
