"""A remedy: one change to a launch, with the ledger after it and its price in words."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.ledger.predict import Prediction


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to change, what it brings and what it costs."""

    flags: tuple[str, ...]
    """The tokens to write, e.g. ``("--max-model-len", "24576")``; empty when the machine changes instead."""
    changes: tuple[tuple[str, object], ...]
    """The same as argument names and values."""
    why: str
    price: str
    """What it costs: quality, speed, length, money."""
    after: Prediction
    name: str = ""
    """What to call a remedy without flags."""
    risk: bool = False
    """The change may fail for a reason that the ledger does not see."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """A remedy that people try, and why it does not help here."""

    name: str
    reason: str
