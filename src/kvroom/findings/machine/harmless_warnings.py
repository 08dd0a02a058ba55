"""KVR267: warnings that look like the cause and are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.logs.reading import State

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR267",
    "harmless-warnings",
    Severity.NOTE,
    "These lines stand near the failure, and healthy starts print them too or they only follow from it.",
    explanation(
        what="Lists the warnings of a failed start which are not its cause.",
        why="""
            People search for the last warning of a log.
            A low limit of open files, custom all-reduce that is off, and a slow message queue appear in healthy
            starts; leaked shared memory and a process group that was not destroyed follow from any crash.
            """,
        example="`There appear to be 1 leaked shared_memory objects to clean up at shutdown` after an out of memory.",
        cure="""
            Nothing. Look at the errors that kvroom reports.
            """,
        since="All releases.",
        references="`vllm/distributed/device_communicators`, Python's resource tracker, PyTorch",
    ),
)
_WHY = {
    "ulimit": "the limit of open files matters under load only",
    "allreduce_off": "another all-reduce is used, slower but correct",
    "leaked": "a worker that died could not clean up",
    "nccl_destroy": "a process that fails does not say goodbye to NCCL",
    "shm_wait": "a rank was busy or already dead",
}


def find(case: Case) -> Iterator[Finding]:
    """One finding for all of them, on a start that failed."""
    if case.reading.state not in {State.FAILED, State.DIED}:
        return
    facts = [fact for name in _WHY if (fact := case.reading.facts.first(name)) is not None]
    if not facts:
        return
    facts.sort(key=lambda fact: fact.line)
    lines = ", ".join(str(fact.line) for fact in facts)
    yield RULE.found(
        f"Not the cause: {'line' if len(facts) == 1 else 'lines'} {lines}.",
        "; ".join(_WHY[fact.id] for fact in facts).capitalize() + ".",
        evidence=[shown(fact) for fact in facts],
    )
