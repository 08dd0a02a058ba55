"""More and more requests at once, until something ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvroom.server.client import Budget
from kvroom.server.limits import Cause, Limit, Targets, limit_of, meets
from kvroom.server.pool import Pool
from kvroom.server.step import Load, Step
from kvroom.server.workload import Workload

_MOST = 4096
_LEAST_REQUESTS = 8
_ROUNDS = 2
"""Requests of each seat."""


@dataclass(frozen=True, slots=True)
class Ramp:
    """The steps taken, the limit that ended them, and the last step in which all was well."""

    steps: tuple[Step, ...]
    limit: Limit
    best: Step | None


def levels_to(most: int | None) -> tuple[int, ...]:
    """1, 2, 4, ... and ``most`` itself; without it as far as is ever useful.

    >>> levels_to(6)
    (1, 2, 4, 6)
    """
    top = most or _MOST
    powers = [1 << i for i in range(top.bit_length()) if 1 << i < top]
    return (*powers, top)


async def ramp(
    load: Load,
    workload: Workload,
    levels: Sequence[int],
    requests: int | None,
    budget: Budget,
    pool: Pool | None,
    targets: Targets,
    say: Callable[[str], None],
) -> Ramp:
    """One step a level, each of ``requests`` requests (by default two a seat, at least eight)."""
    steps: list[Step] = []
    best: Step | None = None
    taken = 0
    for level in levels:
        wanted = max(requests or max(_ROUNDS * level, _LEAST_REQUESTS), 1)
        count = min(wanted, budget.left)
        if count < min(level, wanted):
            evidence = f"{budget.sent:,} of {budget.requests:,} requests and {_spent(budget)} are used up"
            return Ramp(tuple(steps), Limit(Cause.BUDGET, level, evidence), best)
        jobs = workload.take(count, taken)
        taken += count
        say(f"{level} at once, {count} requests")
        step = await load.step(jobs, level)
        steps.append(step)
        limit = limit_of(step, jobs, pool, targets)
        if meets(step, targets):
            best = step
        if limit is not None:
            return Ramp(tuple(steps), limit, best)
    return Ramp(tuple(steps), Limit(Cause.LEVELS, levels[-1], "every concurrency asked for was served"), best)


async def replay(
    load: Load, workload: Workload, budget: Budget, pool: Pool | None, targets: Targets, say: Callable[[str], None]
) -> Ramp:
    """The trace as it arrived, in one step; as much of it as the budget allows."""
    jobs = workload.take(min(len(workload.jobs), budget.left))
    if not jobs:
        return Ramp((), Limit(Cause.BUDGET, None, "no request is left"), None)
    say(f"{len(jobs)} requests as the trace has them, over {jobs[-1].arrival or 0:.0f} s")
    step = await load.step(jobs, None)
    best = step if meets(step, targets) else None
    limit = limit_of(step, jobs, pool, targets)
    if limit is None:
        limit = Limit(Cause.LEVELS, None, f"{len(step.done)} requests of the trace were served")
    return Ramp((step,), limit, best)


def _spent(budget: Budget) -> str:
    return f"{budget.seconds - budget.time_left:.0f} of {budget.seconds:g} s"
