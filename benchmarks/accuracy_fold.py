"""How much the fitted constants owe to the rows they are scored on; ``python -m benchmarks.accuracy`` prints both.

The fitted terms of ``memory.json`` are few constants for a range of releases, read off public logs, of which the corpus
holds many. Here those that are a plain median are fitted anew for each group of rows (model family, card, era) from
the rows of all other groups, the series among them, and the group is scored with them:

- the bytes a logit of the sampler: the median of logged over predicted activation, by era, where the sampler decides;
- non-torch memory: the median of what was logged, or else of what the budget leaves for it, by maker, number of GPUs
  and era.

A cell with fewer than three rows elsewhere keeps the packaged constant. ``profile_extra`` is a few MiB, below what a
log prints, and the terms of forward passes, encoders and graphs have no constant that one launch would decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

Row = Mapping[str, Any]
FEWEST = 3
_BUDGET = ("weights", "activation", "cuda_graphs")


def folded(rows: Sequence[Row], others: Sequence[Row] = ()) -> tuple[list[Row], int]:
    """``rows`` with the constants that the rows of other groups give, and how many rows that changed.

    ``others`` are rows to fit on that are not scored.
    """
    known = [row for row in (*rows, *others) if row["available"] is not None]
    found = [_refitted(row, [other for other in known if _group(other) != _group(row)]) for row in rows]
    return found, sum(new is not old for new, old in zip(found, rows, strict=True))


def _group(row: Row) -> tuple[str, ...]:
    return tuple(row["group"][key] for key in ("family", "card", "era"))


def _refitted(row: Row, elsewhere: Sequence[Row]) -> Row:
    if row["available"] is None or "available" not in row["entries"]:
        return row
    group, ledger = row["group"], row["ledger"]
    moved = 0.0
    if group["peak"] == "sampler":
        ratios = [
            pair["logged"] / pair["predicted"]
            for other in elsewhere
            if other["group"]["peak"] == "sampler" and other["group"]["era"] == group["era"]
            if (pair := other["entries"].get("activation")) and pair["predicted"]
        ]
        if len(ratios) >= FEWEST:
            moved += ledger["activation"] * (1 - median(ratios))
    seen = [
        size
        for other in elsewhere
        if all(other["group"][key] == group[key] for key in ("maker", "gpus", "era"))
        for size in _non_torch(other)
    ]
    if len(seen) >= FEWEST:
        moved += ledger["other"] - median(seen)
    return _with_pool(row, moved) if moved else row


def _non_torch(row: Row) -> Iterator[float]:
    """What a launch logged as non-torch memory, or what its budget leaves for it."""
    entries, ledger = row["entries"], row["ledger"]
    if "other" in entries:
        yield entries["other"]["logged"]
    elif "available" in entries:
        parts = sum(entries[name]["logged"] if name in entries else ledger[name] for name in _BUDGET)
        yield ledger["requested"] - parts - entries["available"]["logged"]


def _with_pool(row: Row, moved: float) -> Row:
    """``row`` with its pool ``moved`` GiB up."""
    pair = row["entries"]["available"]
    entries = {**row["entries"], "available": {**pair, "predicted": pair["predicted"] + moved}}
    return {**row, "entries": entries, "available": {end: size + moved for end, size in row["available"].items()}}
