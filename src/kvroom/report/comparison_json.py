"""A comparison as JSON data of schema ``kvroom/1``: sizes in bytes per GPU (see docs/json.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from kvroom.compare.comparison import Comparison, FigureRow, Moved, SettingRow
from kvroom.compare.side import Figure, Side
from kvroom.redaction import clean
from kvroom.report.schema import SCHEMA

_COUNTS = frozenset({"max_concurrency"})
"""Figures that are no whole numbers."""
_DEEPEST = 20


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """The whole comparison, ready for ``json.dumps``; None where a value is unknown."""
    data = {
        "schema": SCHEMA,
        "kind": "comparison",
        "same": comparison.same,
        "good": _side(comparison.good),
        "bad": _side(comparison.bad),
        "settings": [_setting(row) for row in comparison.settings],
        "ledger": _figures(comparison.ledger),
        "pool": _figures(comparison.pool),
        "moved": _moved(comparison.moved),
        "sentence": comparison.sentence,
    }
    return {key: _plain(value) for key, value in data.items()}


def _side(side: Side) -> dict[str, Any]:
    error = None if side.error is None else {"line": side.error_line, "text": side.error}
    return {
        "source": side.label,
        "is": side.kind,
        "vllm_version": side.value("version"),
        "model": side.value("model"),
        "device": side.value("device"),
        "attention_backend": side.value("attention_backend"),
        "state": side.state,
        "stage": side.stage,
        "error": error,
        "predicted": side.prediction is not None,
        "notes": list(side.notes),
    }


def _setting(row: SettingRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "good": row.good.value if row.good else None,
        "bad": row.bad.value if row.bad else None,
        "known_good": row.good is not None,
        "known_bad": row.bad is not None,
        "default_good": row.good is not None and row.good.default,
        "default_bad": row.bad is not None and row.bad.default,
        "differs": row.differs,
    }


def _figures(rows: Iterable[FigureRow]) -> list[dict[str, Any]]:
    return [
        {
            "entry": row.name,
            "good": _number(row.name, row.good.value if row.good else None),
            "bad": _number(row.name, row.bad.value if row.bad else None),
            "difference": _number(row.name, row.difference),
            "basis_good": _basis(row.good),
            "basis_bad": _basis(row.bad),
            "moved": row.moved,
        }
        for row in rows
    ]


def _basis(figure: Figure | None) -> str | None:
    return figure.basis if figure else None


def _moved(moved: Moved | None) -> dict[str, Any] | None:
    if moved is None:
        return None
    entry = moved.entry
    return {
        "entry": entry,
        "good": _number(entry, moved.good),
        "bad": _number(entry, moved.bad),
        "difference": _number(entry, moved.difference),
        "setting": moved.setting,
        "setting_good": moved.setting_good,
        "setting_bad": moved.setting_bad,
        "predicted": _number(entry, moved.predicted),
        "effect": _number("available", moved.effect),
    }


def _number(name: str, value: float | None) -> float | int | None:
    """Bytes and counts as whole numbers; None for what JSON has no number for."""
    if value is None or not math.isfinite(value):
        return None
    return float(value) if name in _COUNTS else round(value)


def _plain(value: Any, depth: int = 0) -> Any:
    """``value`` as JSON has it, with every text in it fit to be printed."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else clean(f"{value:.0e}" if abs(value) < 10**300 else "too large")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {clean(str(key)): _named(str(key), each, depth) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, depth + 1) for each in value]
    return clean(str(value))


def _named(key: str, value: Any, depth: int) -> Any:
    """The value of ``key`` in a mapping; one that is secret only by its name is masked as well."""
    if not isinstance(value, str):
        return _plain(value, depth + 1)
    whole = clean(f"{key}={value}")
    return clean(value) if whole == f"{clean(key)}={clean(value)}" else whole.partition("=")[2]
