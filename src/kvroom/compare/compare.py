"""Comparing two sides: rows, the entry that moved, the setting that moved it, and one sentence."""

from __future__ import annotations

from kvroom.compare.attribution import Switched, culprit, switches
from kvroom.compare.comparison import NOISE, Comparison, FigureRow, Moved, SettingRow
from kvroom.compare.movement import moved_row
from kvroom.compare.roots import roots, written
from kvroom.compare.rows import free_row, ledger_rows, pool_rows, setting_rows
from kvroom.compare.sentence import Story, tell
from kvroom.compare.side import Side


def compare(good: Side, bad: Side) -> Comparison:
    """What changed from ``good`` to ``bad``."""
    settings, ledger, pool = setting_rows(good, bad), ledger_rows(good, bad), pool_rows(good, bad)
    free = free_row(good, bad)
    short = bad.failed and bad.stage == "device_memory_check"
    row = moved_row(ledger, pool, free, stopped_by_free=short)
    available = next((each.difference for each in ledger if each.name == "available" and each.moved), None)
    made = roots(settings, written(good) | written(bad))
    named = _named(good, bad, settings, row, available)
    moved = None
    if row is not None:
        moved = _moved(row, named, settings, available, made)
    explained = named is not None
    story = Story(good, bad, settings, ledger, pool, tuple(made), moved, free, explained)
    return Comparison(good, bad, settings, ledger, pool, moved, tell(story))


def _named(
    good: Side, bad: Side, settings: tuple[SettingRow, ...], row: FigureRow | None, available: float | None
) -> tuple[Switched, float] | None:
    """The difference that the rules hold responsible, with the change that they predict of the entry."""
    if row is None or row.difference is None or good.prediction is None or bad.prediction is None:
        return None
    candidates = switches(good.prediction, bad.prediction, settings)
    noise = max(row.noise, NOISE if row.name not in {"num_blocks", "tokens", "max_concurrency"} else 0)
    if row.name == "bytes_per_token":
        noise = row.noise
    found = culprit(good.prediction, candidates, row.name, row.difference, noise)
    if found is None and available is not None and row.name != "available":
        found = culprit(good.prediction, candidates, "available", available)
    return found


def _moved(
    row: FigureRow,
    named: tuple[Switched, float] | None,
    settings: tuple[SettingRow, ...],
    available: float | None,
    made: list[SettingRow],
) -> Moved:
    setting = named[0].name if named else None
    shown = next((each for each in settings if each.name == setting), None)
    if named is None and len(made) == 1:
        shown = None
    return Moved(
        entry=row.name,
        good=row.good.value if row.good else None,
        bad=row.bad.value if row.bad else None,
        setting=setting,
        setting_good=shown.good.value if shown and shown.good else None,
        setting_bad=shown.bad.value if shown and shown.bad else None,
        predicted=named[1] if named else None,
        effect=available,
    )
