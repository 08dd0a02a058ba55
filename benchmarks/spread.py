"""How wide intervals must be: ``python -m benchmarks.spread --corpus DIR [--write]``.

The error of an entry, divided by the spread that the ledger gives it, says how far off a launch was in its own terms.
The factors are what 80 and 95 of 100 launches need: the smallest share of n errors that n + 1 would keep (as conformal
prediction counts), the largest where there are too few. They are kept in ``src/kvroom/data/vllm/spread.json`` by entry
and class of launch (``kvroom.ledger.distance``), with the number of launches and the errors that they rest on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from kvroom.ledger.distance import Distance

Row = Mapping[str, Any]
KEPT = Path(__file__).parents[1] / "src" / "kvroom" / "data" / "vllm" / "spread.json"
ENTRIES = ("weights", "activation", "other", "cuda_graphs", "available")
CLASSES = tuple(map(str, Distance))
NEAR = CLASSES[:3]
FEWEST = 8
"""Launches of one class that suffice to fit its own factors; a near class with fewer takes those of all near ones,
a far one what 95 of 100 launches of all classes need."""
_LEAST = 0.05
"""No interval is narrower than this share of its spread."""
_ROUNDED = 0.005
"""GiB that a log rounds away."""


def fitted(name: str, distance: str, rows: Iterable[Row]) -> dict[str, Any]:
    """The factors of one entry and class from ``rows``, with what they rest on."""
    listed = [each for row in rows if (each := _error(row, name))]
    kin = NEAR if distance in NEAR else CLASSES[len(NEAR) :]
    for classes in ((distance,), kin, CLASSES):
        errors = [each for each in listed if each[2] in classes]
        if len(errors) >= FEWEST:
            break
    scaled = sorted(each[0] for each in errors)
    near, wide = (round(max(_share(scaled, share), _LEAST), 3) for share in (0.8, 0.95))
    whose = "all classes" if classes is CLASSES else ", ".join(classes)
    if distance not in NEAR and classes != (distance,):
        near, whose = wide, f"what 95 of 100 need of {whose}"
    return {
        "factor80": near,
        "factor95": wide,
        "runs": len(scaled),
        "of": whose,
        "median_error_gib": round(median(each[1] for each in errors), 3) if errors else None,
        "worst_error_gib": round(max(each[1] for each in errors), 3) if errors else None,
    }


def _error(row: Row, name: str) -> tuple[float, float, str] | None:
    """The error of one entry in its spread and in GiB, and the class of the launch; None where it was not logged."""
    pair, spread = row["entries"].get(name), row.get("spread")
    if pair is None or spread is None:
        return None
    off = pair["logged"] - pair["predicted"]
    size = spread["raw"][name][off > 0]
    beyond = max(abs(off) - _ROUNDED, 0.0)
    return (beyond / size if size else 0.0, abs(off), spread["distance"])


def _share(ordered: Sequence[float], share: float) -> float:
    """The value that ``share`` of one more than ``ordered`` would not exceed, the largest where there are too few."""
    if not ordered:
        return 1.0
    return ordered[min(math.ceil((len(ordered) + 1) * share), len(ordered)) - 1]


def interval(expected: float, raw: Sequence[float], factors: Mapping[str, float]) -> dict[str, float]:
    """The two intervals of an entry in GiB."""
    down, up = raw
    near, wide = factors["factor80"], factors["factor95"]
    return {
        "low": expected - near * down,
        "high": expected + near * up,
        "low95": expected - wide * down,
        "high95": expected + wide * up,
    }


def table(rows: Sequence[Row]) -> dict[str, Any]:
    """The factors of every entry and class."""
    return {name: {distance: fitted(name, distance, rows) for distance in CLASSES} for name in ENTRIES}


def write(rows: Sequence[Row], path: Path = KEPT) -> None:
    """Keep the factors, one class a line."""
    lines = []
    for name, classes in table(rows).items():
        inner = ",\n".join(f'   "{distance}": {json.dumps(found)}' for distance, found in classes.items())
        lines.append(f'  "{name}": {{\n{inner}\n  }}')
    about = (
        "What the spread of a ledger's entry is multiplied with so that it holds 80 and 95 of 100 launches, by class "
        "of launch (ledger/distance.py). Fitted by python -m benchmarks.spread on public launches, of one series "
        "none; under 19 launches the factor for 95 is the largest error seen."
    )
    path.write_text(f'{{\n "about": {json.dumps(about)},\n "entries": {{\n' + ",\n".join(lines) + "\n }\n}\n", "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the factors, or keep them."""
    from benchmarks import accuracy

    parser = argparse.ArgumentParser(prog="python -m benchmarks.spread", description="Fit the widths of intervals.")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR", help="holds started/ and failing/")
    parser.add_argument("--write", action="store_true", help=f"keep the factors in {KEPT.name}")
    options = parser.parse_args(arguments)
    rows = accuracy.scored(accuracy.run(options.corpus, with_series=False)["rows"])
    if options.write:
        write(rows)
    else:
        print(json.dumps(table(rows), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
