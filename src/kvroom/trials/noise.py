"""When two throughputs differ: by more than repeats of one launch do.

The repeats of every trial are pooled, relative to their mean, since each trial has only a few.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

_LEAST = 0.02
"""Share of the mean below which no difference is believed, however quiet the machine."""
_UNKNOWN = 0.05
"""The same where nothing was repeated."""
_TIMES = 2.0
"""Standard errors of the difference."""


class Change(StrEnum):
    """What a difference comes to."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Noise:
    """How far repeats lie apart, relative to their mean."""

    deviation: float | None = None
    """The pooled standard deviation of one repeat; None where nothing was repeated."""

    def of(self, first: int, second: int) -> float:
        """The share by which the means of ``first`` and ``second`` repeats may differ by chance."""
        if self.deviation is None or not first or not second:
            return _UNKNOWN
        return max(_LEAST, _TIMES * self.deviation * math.sqrt(1 / first + 1 / second))

    def change(self, before: Sequence[float], after: Sequence[float]) -> Change:
        """Whether the repeats ``after`` are larger than those ``before``."""
        if not before or not after:
            return Change.SAME
        old, new = fmean(before), fmean(after)
        if old <= 0 or new <= 0:
            return Change.SAME if old == new else Change.BETTER if new > old else Change.WORSE
        if abs(new - old) <= self.of(len(before), len(after)) * max(old, new):
            return Change.SAME
        return Change.BETTER if new > old else Change.WORSE


def noise_of(repeats: Iterable[Sequence[float]]) -> Noise:
    """The noise that the repeats of several trials show; trials with a single repeat tell nothing.

    >>> noise_of([[100.0, 104.0], [50.0, 49.0], [10.0]]).of(2, 2) > 0.03
    True
    """
    squares, degrees = 0.0, 0
    for values in repeats:
        if len(values) < 2 or fmean(values) <= 0:
            continue
        mean = fmean(values)
        squares += sum((value / mean - 1) ** 2 for value in values)
        degrees += len(values) - 1
    return Noise(math.sqrt(squares / degrees) if degrees else None)
