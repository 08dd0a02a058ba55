"""Every figure without the rows it is scored on: ``python -m benchmarks.accuracy`` reports these.

The fitted terms of ``memory.json`` are few constants for a range of releases, read off public logs, of which the corpus
holds many. Each is fitted anew for each group of rows (model family, card, era) from the rows of all other groups, the
series among them, and the group is scored with them:

- the bytes a logit of the sampler: the median of logged over predicted activation of the launches with that constant
  whose peak is the sampler's;
- non-torch memory: the median of what was logged, or else of what the budget leaves for it, less what is predicted, of
  the launches with that constant;
- the factors of the intervals (``kvroom/data/vllm/spread.json``), by class of launch, from the errors that the reports
  have then; the series is left out, as in ``benchmarks.spread``.

A constant that fewer than three rows elsewhere share keeps its packaged value; ``changed`` counts the others. So does
the size of a CUDA graph, of which seven launches logged vLLM's estimate. What is traced from vLLM's own code, and what
its source states, is fitted on no launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.spread import ENTRIES, fitted, interval

Row = Mapping[str, Any]
FEWEST = 3
_BUDGET = ("weights", "activation", "cuda_graphs")


def folded(rows: Sequence[Row], others: Sequence[Row] = ()) -> tuple[list[Row], int]:
    """``rows`` with the constants that the rows of other groups give, and how many rows that changed.

    ``others`` are rows to fit on that are not scored.
    """
    known = [row for row in (*rows, *others) if row["available"] is not None]
    found = [_refitted(row, _elsewhere(row, known)) for row in rows]
    changed = sum(new is not old for new, old in zip(found, rows, strict=True))
    return [_with_interval(row, _elsewhere(row, found)) for row in found], changed


def _elsewhere(row: Row, rows: Sequence[Row]) -> list[Row]:
    return [other for other in rows if _group(other) != _group(row)]


def _group(row: Row) -> tuple[str, ...]:
    return tuple(row["group"][key] for key in ("family", "card", "era"))


def _refitted(row: Row, elsewhere: Sequence[Row]) -> Row:
    if row["available"] is None or "available" not in row["entries"]:
        return row
    moved: dict[str, float] = {}
    if row["group"]["peak"] == "sampler":
        ratios = [
            pair["logged"] / pair["predicted"]
            for other in elsewhere
            if other["group"]["peak"] == "sampler" and other["group"]["sampler"] == row["group"]["sampler"]
            if (pair := other["entries"].get("activation")) and pair["predicted"]
        ]
        if len(ratios) >= FEWEST:
            moved["activation"] = row["ledger"]["activation"] * (median(ratios) - 1)
    seen = [
        size - other["ledger"]["other"]
        for other in elsewhere
        if other["group"]["non_torch"] == row["group"]["non_torch"]
        for size in _non_torch(other)
    ]
    if len(seen) >= FEWEST:
        moved["other"] = median(seen)
    return _moved(row, moved) if moved else row


def _non_torch(row: Row) -> Iterator[float]:
    """What a launch logged as non-torch memory, or what its budget leaves for it."""
    entries, ledger = row["entries"], row["ledger"]
    if "other" in entries:
        yield entries["other"]["logged"]
    elif "available" in entries:
        parts = sum(entries[name]["logged"] if name in entries else ledger[name] for name in _BUDGET)
        yield ledger["requested"] - parts - entries["available"]["logged"]


def _moved(row: Row, moved: Mapping[str, float]) -> Row:
    """``row`` with entries moved by so many GiB, and its pool by their sum down."""
    down = sum(moved.values())
    steps = {**moved, "available": -down}
    entries = {
        name: {**pair, "predicted": pair["predicted"] + steps.get(name, 0.0)} for name, pair in row["entries"].items()
    }
    ledger = {name: size + steps.get(name, 0.0) for name, size in row["ledger"].items()}
    around = {end: size - down for end, size in row["available"].items()}
    return {**row, "entries": entries, "ledger": ledger, "available": around}


def _with_interval(row: Row, elsewhere: Sequence[Row]) -> Row:
    """``row`` with intervals whose factors are fitted on other groups."""
    if row["available"] is None or row["spread"] is None:
        return row
    distance, raw = row["spread"]["distance"], row["spread"]["raw"]
    around = {}
    for name in ENTRIES:
        expected = row["available"]["expected"] if name == "available" else row["ledger"][name]
        around[name] = {"expected": expected, **interval(expected, raw[name], fitted(name, distance, elsewhere))}
    return {**row, "around": around, "available": around["available"]}
