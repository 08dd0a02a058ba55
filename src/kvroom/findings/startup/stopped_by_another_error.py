"""KVR215: an error that stopped the start and that no other finding knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals import bad_arguments
from kvroom.findings.refusals.common import short
from kvroom.findings.startup.common import first
from kvroom.logs.reading import State
from kvroom.redaction import clean

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR215",
    "stopped-by-another-error",
    Severity.ERROR,
    "The start stopped with an exception for which kvroom has no finding of its own.",
    explanation(
        what="""
            Tells the first exception of a failed start which follows from no other one, with the stage in which
            it was raised and the place in vLLM, where the log shows them.
            Appears only where no other finding of severity error does.
            """,
        why="""
            The last lines of a failed start are wrappers: `Engine core initialization failed`, a process that
            died, leaked shared memory.
            The first exception of the first process that failed is what to search for and to report.
            """,
        example="`ValueError: Unsupported connector type: ...` under `Engine process failed to start`.",
        cure="""
            Search vLLM's issues for the text; try the newest release and, one at a time, without the options
            that are not defaults.
            """,
        since="All releases.",
        references="vLLM's troubleshooting guide",
    ),
)
_NEAR = 60
"""Lines before an exception in which its last call stands."""
_WHERE = {"config": "while the settings were checked", "unknown": ""}


def find(case: Case) -> Iterator[Finding]:
    """The finding with the exception."""
    reading = case.reading
    error = reading.error
    if error is None or reading.state is not State.FAILED or error.id not in {"exception", "bare"}:
        return
    if any(True for _ in bad_arguments.find(case)):
        return
    where = _WHERE.get(reading.stage, f"at the stage {reading.stage.replace('_', ' ')}")
    calls = [fact for fact in reading.facts.all("frame") if error.line - _NEAR <= fact.line < error.line]
    calls = [fact for fact in calls if fact.process == error.process]
    last = calls[-1].values["function"] if calls else None
    yield RULE.found(
        f"The start failed{' ' if where else ''}{where}: {short(clean(error.text))}",
        "It is the first exception that follows from no other one" + (f", raised in {last}." if last else "."),
        evidence=(shown(error),),
        advice=_advice(case, error),
    )


def _advice(case: Case, error: Fact) -> tuple[str, ...]:
    connector = case.setting("kv_transfer_config") or "connector" in error.text.lower()
    return first(
        (
            "Take the release of the connector (LMCache, NIXL) that was made for this vLLM." if connector else None,
            "The checkpoint and the model's class do not fit: take the release of vLLM that the model card names."
            if case.reading.stage == "weight_load" and not connector
            else None,
            "--enforce-eager (to see whether compilation is involved)"
            if case.reading.stage in {"compile", "profile", "graph_capture"} and not case.setting("enforce_eager")
            else None,
            "Search vLLM's issues for this text, and try the newest release.",
            "Start with the model alone, then add the options one at a time.",
        )
    )
