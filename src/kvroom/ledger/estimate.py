"""Three-point estimates: low, expected and high, in bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvroom.units import MIB, from_gib


class Estimate(NamedTuple):
    """A number of bytes that is not known exactly."""

    low: float
    expected: float
    high: float

    def plus(self, other: Estimate) -> Estimate:
        """The sum of two terms that err together."""
        return Estimate(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def at_least(self, other: Estimate) -> Estimate:
        """The larger of two terms, point by point: the peak of two phases."""
        return Estimate(max(self.low, other.low), max(self.expected, other.expected), max(self.high, other.high))


ZERO = Estimate(0.0, 0.0, 0.0)


def scaled(n_bytes: float, low: float, high: float) -> Estimate:
    """``n_bytes`` with a spread given as factors."""
    return Estimate(n_bytes * low, n_bytes, n_bytes * high)


def from_rule(rule: dict[str, Any], factor: float = 1.0) -> Estimate:
    """A fitted rule's low, expected and high, each times ``factor``."""
    return Estimate(rule["low"] * factor, rule["expected"] * factor, rule["high"] * factor)


def mebibytes(rule: dict[str, Any]) -> Estimate:
    """A fitted rule given in MiB."""
    return from_rule(rule, MIB)


def gibibytes(low: float, expected: float, high: float) -> Estimate:
    """An estimate given in GiB."""
    return Estimate(from_gib(low), from_gib(expected), from_gib(high))
