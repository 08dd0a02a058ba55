"""The rows of a comparison: two sides put beside each other, name by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvroom.compare.comparison import NOISE, FigureRow, SettingRow
from kvroom.compare.figures import LEDGER, POOL
from kvroom.compare.names import rank
from kvroom.compare.side import Figure, Side
from kvroom.devices.names import words
from kvroom.units import MIB

_LEAST_TOTAL = 64 * MIB
"""Bytes by which the printed total of one card may differ."""
_SHARE = 0.01
"""Share by which a pool differs from run to run, whatever its size."""


def setting_rows(good: Side, bad: Side) -> tuple[SettingRow, ...]:
    """Every setting that one side knows, in the order in which to look at them."""
    names = sorted(good.settings.keys() | bad.settings.keys(), key=rank)
    rows = []
    for name in names:
        left, right = good.settings.get(name), bad.settings.get(name)
        differs = left is not None and right is not None and not same(name, left.value, right.value)
        if left is None or right is None or differs or left.value is not None or right.value is not None:
            rows.append(SettingRow(name, left, right, differs))
    return tuple(rows)


def ledger_rows(good: Side, bad: Side) -> tuple[FigureRow, ...]:
    """The ledger; the sum of activation and other only where a side does not know the two."""
    parts = ("activation", "other")
    both = all(name in side.ledger for name in parts for side in (good, bad))
    rows = []
    for name in LEDGER:
        left, right = good.ledger.get(name), bad.ledger.get(name)
        if (left is None and right is None) or (name == "rest" and (both or left is None or right is None)):
            continue
        rows.append(FigureRow(name, left, right, NOISE))
    return tuple(rows)


def pool_rows(good: Side, bad: Side) -> tuple[FigureRow, ...]:
    """The pool; a difference that a noisy ledger makes by itself is noise."""
    share = _SHARE
    available = good.ledger.get("available") or bad.ledger.get("available")
    if available is not None and available.value > 0:
        share = max(share, NOISE / available.value)
    rows = []
    for name in POOL:
        left, right = good.pool.get(name), bad.pool.get(name)
        if left is not None or right is not None:
            largest = max(abs(figure.value) for figure in (left, right) if figure is not None)
            factor = 2 * _SHARE if name in {"bytes_per_token", "needed_bytes"} else share
            rows.append(FigureRow(name, left, right, largest * factor))
    return tuple(rows)


def free_row(good: Side, bad: Side) -> FigureRow:
    """The free memory at start as a row."""
    values = [side.value("free_bytes") for side in (good, bad)]
    left, right = (Figure(value, value, value, "printed") if _number(value) else None for value in values)
    return FigureRow("free_bytes", left, right, NOISE)


def same(name: str, good: Any, bad: Any) -> bool:
    """Whether two values of the setting ``name`` come to the same."""
    if _number(good) and _number(bad):
        least = {"total_bytes": _LEAST_TOTAL, "free_bytes": NOISE}.get(name, 1e-6)
        return bool(abs(good - bad) < least)
    if name == "device":
        left, right = words(str(good)), words(str(bad))
        return left <= right or right <= left
    if name == "model":
        return _last(good) == _last(bad)
    if isinstance(good, Mapping) != isinstance(bad, Mapping) and good and bad:
        return True  # one printed as a mapping, one as text: nothing tells that they differ
    return _plain(good) == _plain(bad)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _last(model: object) -> str:
    return str(model).rstrip("/").rpartition("/")[2].casefold()


def _plain(value: object) -> str:
    """``value`` in a form in which spellings of one value are equal."""
    if value in (None, "", {}, []):
        return ""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, sort_keys=True, default=str)
    text = str(value).casefold()
    return {"fp8_e4m3": "fp8"}.get(text, text.removesuffix("_marlin"))
