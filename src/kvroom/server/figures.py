"""Times of many requests in a few figures, taken as ``vllm bench serve`` takes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds: how one kind of time is spread over the requests."""

    count: int
    mean: float
    deviation: float
    percentiles: tuple[tuple[int, float], ...]

    def at(self, percentile: int) -> float:
        """The value that so many percent stay below."""
        return dict(self.percentiles)[percentile]

    @property
    def median(self) -> float:
        """The 50th percentile."""
        return self.at(50)


def spread(values: Iterable[float | None]) -> Spread | None:
    """The figures of ``values`` without the missing ones; None where none is left.

    >>> spread([1.0, None, 3.0]).median
    2.0
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / len(known))
    return Spread(len(known), mean, deviation, tuple((p, percentile(known, p)) for p in PERCENTILES))


def percentile(ordered: Sequence[float], p: float) -> float:
    """The ``p``-th percentile of sorted values, between two of them in proportion (numpy's default).

    >>> percentile([1.0, 2.0, 3.0, 5.0], 50)
    2.5
    """
    place = (len(ordered) - 1) * p / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
