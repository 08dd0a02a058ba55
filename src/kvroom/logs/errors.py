"""Which of the errors in a log is the first real one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvroom.logs.facts import Fact, Facts
from kvroom.logs.messages import WEAK
from kvroom.logs.stages import STAGES, rank, stage_of_error

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
    "Error raised in subprocess",
    "returned non-zero exit status",
)
_POINTERS = frozenset({"err_arch_inspect"})
"""Messages that only say that the reason stands above."""
_NAMELESS = frozenset({"exception", "bare"})
_NEAR = 200
_MOST = 200
"""Errors that are judged at either end of a log with very many."""
_REQUEST = frozenset(
    """too_long_total too_long_input too_long_output too_long_prompt too_long_input_length too_few_tokens
    unknown_model encoder_item never_fits_v0 refused_tools refused_items refused_template""".split()
)
"""Errors of one request, which a server survives; older releases log them with a traceback."""


def first_error(facts: Facts) -> Fact | None:
    """The first error that is a cause and that the start did not survive; None where there is none.

    A specific message wins over the bare line of an exception, whatever comes first.
    """
    quiet = {fact.line for fact in facts if fact.role == "noise" or fact.id in _REQUEST}
    errors = [fact for fact in facts if fact.role == "error" and fact.line not in quiet]
    errors = errors if len(errors) <= 2 * _MOST else [*errors[:_MOST], *errors[-_MOST:]]
    survived = partial(_survived, facts=facts, last_done=_last_done(facts))
    errors = [fact for fact in errors if not survived(fact)]
    specific = [fact for fact in errors if fact.id not in WEAK and not fact.id.startswith("told_")]
    told = [fact for fact in errors if fact.id.startswith("told_") and fact.id != "told_oom"]
    weak = [fact for fact in errors if fact.id in WEAK and fact.level not in _QUIET and not _wraps(fact)]
    if specific and specific[0].id in _POINTERS:
        return _pointed_at(specific[0], weak) or specific[0]
    if specific or told:
        return (specific or told)[0]
    if weak:
        return _most_telling(weak)
    return next((fact for fact in errors if fact.id == "told_oom"), None)


def _wraps(fact: Fact) -> bool:
    """Whether an exception only says that there was another one."""
    message = fact.values.get("message", "")
    return any(wrapper in f"{fact.text} {message}" for wrapper in _WRAPPERS)


def _most_telling(weak: Sequence[Fact]) -> Fact:
    """The first of the exceptions; on one line the one with a name, and one with words before one without."""
    first = min(weak, key=lambda fact: (fact.line, fact.id in _NAMELESS))
    if first.id == "bare":
        # often what the next exception was raised from
        near = (fact for fact in weak if fact.id != "bare" and first.line < fact.line <= first.line + _NEAR)
        return next((fact for fact in near if fact.process == first.process), first)
    return first


def _pointed_at(pointer: Fact, weak: Sequence[Fact]) -> Fact | None:
    """The error that ``pointer`` says is above it: the last one of the lines before."""
    above = [fact for fact in weak if pointer.line - _NEAR <= fact.line < pointer.line]
    above = [fact for fact in above if "validation error" not in fact.text]
    return max(above, key=lambda fact: (fact.line, fact.id not in _NAMELESS), default=None)


def _last_done(facts: Facts) -> list[int]:
    """By the rank of a stage the last line that shows a later one done, or the server up."""
    done = [0] * len(STAGES)
    for fact in facts:
        if fact.role == "passed" and rank(fact.stage) >= 0:
            done[rank(fact.stage)] = max(done[rank(fact.stage)], fact.line)
    serving = facts.last("serving")
    latest = [serving.line if serving else 0]
    for line in reversed(done[1:]):
        latest.append(max(latest[-1], line))
    return latest[::-1]


def _survived(error: Fact, facts: Facts, last_done: Sequence[int]) -> bool:
    """Whether a later stage was done after ``error``, so that it was none of consequence."""
    if error.line >= last_done[0]:
        return False
    stage = error.stage if error.stage != "any" else stage_of_error(error, facts)
    return stage not in {"serving", "shutdown", "unknown"} and error.line < last_done[rank(stage)]
