"""Two starts side by side: what differs, what moved, and what moved it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvroom.compare.side import Figure, Setting, Side
from kvroom.units import GIB, cdiv

NOISE = cdiv(GIB, 10)
"""Bytes by which two starts of one launch differ from run to run."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting of both sides, None where it is unknown."""

    name: str
    good: Setting | None
    bad: Setting | None
    differs: bool
    """Both are known and not the same."""


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One entry of the ledger or the pool, None where it is unknown."""

    name: str
    good: Figure | None
    bad: Figure | None
    noise: float
    """By how much two runs of one launch may differ, in the row's unit."""

    @property
    def difference(self) -> float | None:
        """BAD less GOOD; None where one is unknown."""
        if self.good is None or self.bad is None:
            return None
        return self.bad.value - self.good.value

    @property
    def moved(self) -> bool:
        """Whether the difference is more than noise and than the uncertainty of a prediction."""
        if self.good is None or self.bad is None:
            return False
        apart = max(self.bad.low - self.good.high, self.good.low - self.bad.high)
        return apart > 0 and abs(self.bad.value - self.good.value) >= self.noise


@dataclass(frozen=True, slots=True)
class Moved:
    """The entry that moved most of what is available, or of the pool."""

    entry: str
    good: float | None
    bad: float | None
    setting: str | None = None
    """The setting that moved it; None where the rules cannot tell."""
    setting_good: Any = None
    setting_bad: Any = None
    predicted: float | None = None
    """By how much the rules say that the setting moves the entry."""
    effect: float | None = None
    """What is available in BAD less what is in GOOD, in bytes."""

    @property
    def difference(self) -> float | None:
        """BAD less GOOD."""
        return None if self.good is None or self.bad is None else self.bad - self.good


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from GOOD to BAD."""

    good: Side
    bad: Side
    settings: tuple[SettingRow, ...]
    ledger: tuple[FigureRow, ...]
    pool: tuple[FigureRow, ...]
    moved: Moved | None
    sentence: str

    @property
    def same(self) -> bool:
        """Whether nothing differs but noise."""
        figures = any(row.moved for row in (*self.ledger, *self.pool))
        return not figures and not any(row.differs for row in self.settings) and self.good.failed == self.bad.failed
