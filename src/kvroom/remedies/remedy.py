"""A remedy: one change to a launch, with the ledger after it and its price in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status


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


Candidates = Iterator[Remedy | Impossible]


def room(prediction: Prediction) -> int:
    """0 when it surely starts, 1 when it should, 2 when it may, 3 when it fails."""
    status, pool = prediction.verdict.status, prediction.pool
    if status is Status.FITS:
        return 0
    if status is Status.FAILS:
        return 3
    return 1 if pool is not None and pool.fits else 2


def changed(before: Prediction, flags: tuple[str, ...], why: str, price: str, **changes: object) -> Remedy:
    """The remedy that changes some arguments, with the prediction after it."""
    return Remedy(flags, tuple(changes.items()), why, price, predict(before.setup.with_args(**changes)))


def leaves_more(before: Prediction, after: Prediction) -> bool:
    """Whether ``after`` has more bytes or more tokens for the KV cache."""
    if before.ledger is None or after.ledger is None or after.pool is None:
        return False
    tokens = before.pool.tokens if before.pool else 0
    return after.ledger.available.expected > before.ledger.available.expected or after.pool.tokens > tokens
