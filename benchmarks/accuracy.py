"""How near ``kvroom plan`` is to what starts logged: ``python -m benchmarks.accuracy --corpus DIR [--json] [--write]``.

DIR holds ``started/*.json`` and ``failing/*.json`` (reports with the figures of their logs) and
``started-series.csv`` (one study of few machines). Every report whose command or settings, card and release are known
is planned and compared entry by entry (``benchmarks.accuracy_score``); the others are listed with the reason.
``accuracy_map.json`` corrects what a report has wrong or leaves open. The series has many repeats of one machine: it
is reported apart. ``--write`` keeps the figures in ``accuracy.json``, from which ``docs/accuracy.md`` is made.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accuracy_fold import folded
from benchmarks.accuracy_score import ENTRIES, IN_GIB, entry_errors, percentile, score, summary
from benchmarks.launches import Apart, Launch, read_corrections, read_reasons, reports, series
from kvroom.errors import KvroomError

KEPT = Path(__file__).with_name("accuracy.json")
_WORST = 10


def run(corpus: Path, only: Sequence[str] = (), with_series: bool = True) -> dict[str, Any]:
    """The scoreboard over a corpus; ``only`` keeps the rows whose id begins so."""
    corrections = read_corrections()
    launches: list[Launch | Apart] = []
    for kind in ("started", "failing"):
        launches += reports(corpus, corrections, kind)
    if with_series and (corpus / "started-series.csv").exists():
        launches += series(corpus)
    rows = [
        _scored(each, corrections.get(each.id, {})) for each in launches if not only or each.id.startswith(tuple(only))
    ]
    return {"summary": summary(scored(rows)), "rows": rows}


def scored(rows: Iterable[Mapping[str, Any]], series: bool = False) -> list[Mapping[str, Any]]:
    """The rows that count: of the reports, or those of the series."""
    return [row for row in rows if "apart" not in row and (row["kind"] == "series") == series]


def _scored(launch: Launch | Apart, correction: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(launch, Apart):
        return {"id": launch.id, "kind": "apart", "apart": launch.reason}
    try:
        row = score(launch, launch.plan)
    except KvroomError as error:
        return {"id": launch.id, "kind": launch.kind, "apart": " ".join(str(error).split("\n")[:1])}
    return {**row, "why": correction["why"]} if "why" in correction else row


def table(board: Mapping[str, Any]) -> str:
    """The scoreboard as text."""
    rows = scored(board["rows"])
    lines = ["Errors, predicted less logged", *_entry_lines(rows), "", "Summary"]
    left_out, changed = folded(rows, scored(board["rows"], series=True))
    lines[-1] += f"{'as packaged':>34}{'left out':>12}"
    lines += [
        f"  {name:24}{_shown(value):>17}{_shown(again):>12}"
        for (name, value), again in zip(board["summary"].items(), summary(left_out).values(), strict=True)
    ]
    lines += [f"  left out: constants fitted without the launch's family, card and era; they move {changed} launches"]
    lines += ["", f"The {_WORST} worst pools"]
    reasons = read_reasons()
    for row in worst(rows):
        lines += [f"  {worst_line(row)}", f"    {reasons.get(row['id'], 'reason not known')}"]
    lines += ["", "Verdicts that are wrong"]
    lines += [
        f"  {row['id']}: {row['verdict']['observed']}, says {row['verdict']['said']}"
        for row in rows
        if row["verdict"]["right"] is False
    ]
    lines += ["", "Blocks or tokens that do not follow from the logged pool"]
    lines += [
        f"  {row['id']}: {', '.join(name for name, right in row['given_pool'].items() if not right)}"
        for row in rows
        if row["given_pool"] and not all(row["given_pool"].values())
    ]
    apart = [row for row in board["rows"] if "apart" in row and row["kind"] != "series"]
    lines += ["", f"Not asked about: {len(apart)}", *_reasons(apart)]
    repeats = scored(board["rows"], series=True)
    if repeats:
        lines += ["", f"The series, {len(repeats)} starts of few machines", *_entry_lines(repeats)]
        lines += [f"  {name:24}{_shown(value):>10}" for name, value in summary(repeats).items()]
    return "\n".join(lines)


def _reasons(apart: Iterable[Mapping[str, Any]]) -> list[str]:
    """The rows that were not asked about, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for row in apart:
        by_reason.setdefault(row["apart"][:150], []).append(row["id"].split("-")[0])
    return [f"  {reason}: {', '.join(ids)}" for reason, ids in by_reason.items()]


def _entry_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [f"  {'':12}{'unit':>5}{'rows':>6}{'median':>10}{'90th':>10}{'worst':>10}"]
    for name in ENTRIES:
        errors = [abs(error) for error in entry_errors(rows, name)]
        if errors:
            figures = "".join(f"{percentile(errors, share):>10.2f}" for share in (0.5, 0.9, 1.0))
            lines.append(f"  {name:12}{'GiB' if name in IN_GIB else '%':>5}{len(errors):>6}{figures}")
    return lines


def worst(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows whose pool is furthest from the logged one."""
    with_pool = [row for row in rows if "available" in row["entries"]]
    return sorted(with_pool, key=_pool_error, reverse=True)[:_WORST]


def _pool_error(row: Mapping[str, Any]) -> float:
    pair = row["entries"]["available"]
    return float(abs(pair["predicted"] - pair["logged"]))


def worst_line(row: Mapping[str, Any]) -> str:
    """One bad row: the launch, and each entry that differs."""
    parts = [
        f"{name} {pair['logged']:.2f} -> {pair['predicted']:.2f}"
        for name, pair in row["entries"].items()
        if name in IN_GIB and abs(pair["predicted"] - pair["logged"]) >= 0.05
    ]
    return f"{row['id']} {row['model']} on {row['gpu']}, {row['release']}: {', '.join(parts)}"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def kept(board: Mapping[str, Any]) -> dict[str, Any]:
    """What ``accuracy.json`` holds: the figures, also with refitted constants, and one short row a launch."""
    rows = scored(board["rows"])
    left_out = summary(folded(rows, scored(board["rows"], series=True))[0])
    return {
        "about": "Written by python -m benchmarks.accuracy --corpus DIR --write. Pools in GiB per GPU.",
        "summary": board["summary"],
        "entries": {
            name: {
                "unit": "GiB" if name in IN_GIB else "%",
                "rows": len(errors),
                **{key: round(percentile(errors, at), 4) for key, at in _PERCENTILES.items()},
            }
            for name in ENTRIES
            if (errors := [abs(error) for error in entry_errors(rows, name)])
        },
        "series": _series_figures(board["rows"]),
        "left_out": left_out,
        "not_asked": sum("apart" in row and row["kind"] != "series" for row in board["rows"]),
        "worst": {row["id"]: read_reasons().get(row["id"], "not known") for row in worst(rows)},
        "rows": [_kept_row(row) for row in rows],
    }


def _series_figures(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    repeats = scored(rows, series=True)
    errors = [abs(error) for error in entry_errors(repeats, "available")]
    return {**summary(repeats), "worst": round(max(errors), 2) if errors else None}


_PERCENTILES = {"median": 0.5, "p90": 0.9, "worst": 1.0}


def _kept_row(row: Mapping[str, Any]) -> list[Any]:
    pair = row["entries"].get("available")
    pool = [pair["logged"], round(pair["predicted"], 2)] if pair else [None, None]
    model = row["model"].rsplit("/", 1)[-1]
    return [row["id"], row["release"], row["gpu"], model, *pool, row["verdict"]["said"], row["verdict"]["right"]]


def write(board: Mapping[str, Any], path: Path = KEPT) -> None:
    """Keep the figures, one launch a line."""
    data = kept(board)
    rows = ",\n".join(f"  {json.dumps(row)}" for row in data.pop("rows"))
    head = json.dumps(data, indent=1)
    path.write_text(f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n', "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scoreboard."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description="Score kvroom plan on a corpus.")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR", help="holds started/ and failing/")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {KEPT.name}")
    parser.add_argument("--case", action="append", default=[], metavar="ID", help="only rows whose id begins so")
    options = parser.parse_args(arguments)
    if not (options.corpus / "started").is_dir():
        parser.error(f"{options.corpus} has no folder started/")
    board = run(options.corpus, options.case)
    print(json.dumps(board, indent=1) if options.json else table(board))
    if options.write:
        write(board)
    return 0


if __name__ == "__main__":
    sys.exit(main())
