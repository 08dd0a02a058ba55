"""Which of the errors in a log is the first real one."""

from __future__ import annotations

from kvroom.logs.facts import Fact, Facts
from kvroom.logs.stages import rank, stage_of_error

_QUIET = frozenset({"INFO", "DEBUG", "WARNING"})
_WRAPPERS = (
    "Engine core initialization failed",
    "Engine process failed to start",
    "EngineCore encountered",
    "EngineDeadError",
    "WorkerProc initialization failed",
    "Worker failed with error",
    "Background loop",
    "Timed out waiting for engine",
    "cancelled",
    "See root cause above",
    "died unexpectedly",
)
_REQUEST = frozenset(
    """too_long_total too_long_input too_long_output too_long_prompt too_long_input_length too_few_tokens
    unknown_model encoder_item never_fits_v0""".split()
)
"""Errors of one request, which a server survives; older releases log them with a traceback."""


def first_error(facts: Facts) -> Fact | None:
    """The first error that is a cause and that the start did not survive; None where there is none.

    A specific message wins over the bare line of an exception, whatever comes first.
    """
    quiet = {fact.line for fact in facts if fact.role == "noise" or fact.id in _REQUEST}
    errors = [fact for fact in facts if fact.role == "error" and fact.line not in quiet and not _survived(fact, facts)]
    specific = [fact for fact in errors if fact.id != "exception" and not fact.id.startswith("told_")]
    told = [fact for fact in errors if fact.id.startswith("told_") and fact.id != "told_oom"]
    if specific or told:
        return (specific or told)[0]
    for fact in errors:
        if fact.id == "told_oom":
            continue
        message = fact.values.get("message", "")
        if fact.level not in _QUIET and not any(wrapper in f"{fact.text} {message}" for wrapper in _WRAPPERS):
            return fact
    return next((fact for fact in errors if fact.id == "told_oom"), None)


def _survived(error: Fact, facts: Facts) -> bool:
    """Whether a later stage was done after ``error``, so that it was none of consequence."""
    stage = error.stage if error.stage != "any" else stage_of_error(error, facts)
    if stage in {"serving", "shutdown", "unknown"}:
        return False
    return any(
        fact.line > error.line and fact.role == "passed" and rank(fact.stage) > rank(stage) and not _of_v0(error, fact)
        for fact in facts
    ) or any(fact.id == "serving" and fact.line > error.line for fact in facts)


def _of_v0(error: Fact, fact: Fact) -> bool:
    """Older engines print the pool before they refuse it, and in a paste the order may be another."""
    return error.stage == "kv_sizing" and fact.stage == "kv_sizing"
