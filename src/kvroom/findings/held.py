"""The prediction held against the log, entry by entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvroom.ledger.predict import Prediction
from kvroom.logs.reading import Reading

_ROUNDING = 2**27
"""Bytes by which a printed figure may miss: two decimals of a GiB, one in some releases."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry as predicted and as logged, in bytes per GPU."""

    entry: str
    low: int
    expected: int
    high: int
    logged: int
    line: int
    """Line of the log."""

    @property
    def outside(self) -> bool:
        """Whether the log lies outside of what was predicted."""
        return not self.low - _ROUNDING <= self.logged <= self.high + _ROUNDING


def held_against(prediction: Prediction, reading: Reading) -> tuple[Difference, ...]:
    """The entries that both the rules and the log speak of."""
    return tuple(_differences(prediction, reading))


def _differences(prediction: Prediction, reading: Reading) -> Iterator[Difference]:
    if prediction.ledger is None:
        return
    for entry in prediction.ledger:
        measured = reading.measured.get("graph_estimate" if entry.name == "cuda_graphs" else entry.name)
        if measured is not None and (entry.name != "cuda_graphs" or entry.expected):
            yield Difference(entry.name, entry.low, entry.expected, entry.high, measured.value, measured.line)
