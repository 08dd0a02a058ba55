"""The entry that moved: the largest change that explains what is available, or the pool."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kvroom.compare.comparison import FigureRow

_TAKEN = frozenset({"weights", "activation", "other", "rest", "cuda_graphs"})
"""Entries that leave less for the cache the larger they are."""


def moved_row(
    ledger: Sequence[FigureRow], pool: Sequence[FigureRow], free: FigureRow, *, stopped_by_free: bool
) -> FigureRow | None:
    """The row of the entry that moved most, None where all is noise.

    ``stopped_by_free`` says that BAD found too little free memory to begin.
    """
    if stopped_by_free and free.moved:
        return free
    by_name = {row.name: row for row in (*ledger, *pool)}
    available, per_token = by_name.get("available"), by_name.get("bytes_per_token")
    if available is not None and available.moved:
        if per_token is not None and per_token.moved and _ratio(per_token) > _ratio(available):
            return per_token
        return _part(ledger, available) or available
    for name in ("bytes_per_token", "tokens", "needed_bytes", "max_concurrency"):
        row = by_name.get(name)
        if row is not None and row.moved:
            return row
    known = available is not None and available.difference is not None
    return None if known else _largest(ledger)


def contribution(row: FigureRow) -> float:
    """By how much the row's change moves what is available."""
    difference = row.difference or 0.0
    return -difference if row.name in _TAKEN else difference


def _part(ledger: Iterable[FigureRow], available: FigureRow) -> FigureRow | None:
    """The part whose change accounts for at least half of the change of ``available``."""
    whole = available.difference or 0.0
    parts = [row for row in ledger if row.name != "available" and row.moved and contribution(row) * whole > 0]
    best = max(parts, key=lambda row: abs(contribution(row)), default=None)
    return best if best is not None and abs(contribution(best)) >= abs(whole) / 2 else None


def _largest(ledger: Iterable[FigureRow]) -> FigureRow | None:
    return max((row for row in ledger if row.moved), key=lambda row: abs(row.difference or 0), default=None)


def _ratio(row: FigureRow) -> float:
    """How many times larger, on a scale where halving counts as much as doubling."""
    if row.good is None or row.bad is None or min(row.good.value, row.bad.value) <= 0:
        return 0.0 if row.name == "bytes_per_token" else math.inf
    return abs(math.log(row.bad.value / row.good.value))
