"""How near ``kvroom plan`` is to what starts logged: ``python -m benchmarks.accuracy --corpus DIR [--json] [--write]``.

DIR holds ``started/*.json`` and ``failing/*.json`` (reports with the figures of their logs) and
``started-series.csv`` (one study of few machines). Every report whose command or settings, card and release are known
is planned and compared entry by entry (``benchmarks.accuracy_score``); the others are listed with the reason.
No row is scored with a constant that it was fitted on (``benchmarks.accuracy_fold``: model family, card and era of the
release are left out together). ``accuracy_map.json`` corrects what a report has wrong or leaves open. The series has
many repeats of one machine: it is reported apart. ``--write`` keeps the figures in ``accuracy.json``, from which
``docs/accuracy.md`` is made, and the launches in ``tests/data/accuracy/launches.json``, which a test plans again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accuracy_fold import folded
from benchmarks.accuracy_score import ENTRIES, IN_GIB, coverage, entry_errors, percentile, score, summary
from benchmarks.launches import Apart, Launch, read_corrections, read_reasons, reports
from benchmarks.series import series
from kvroom.errors import KvroomError

KEPT = Path(__file__).with_name("accuracy.json")
LAUNCHES = Path(__file__).parents[1] / "tests" / "data" / "accuracy" / "launches.json"
_WORST = 10
_SAID = 250
"""Characters of a reason."""
_PERCENTILES = {"median": 0.5, "p90": 0.9, "worst": 1.0}


def run(corpus: Path, only: Sequence[str] = (), with_series: bool = True) -> dict[str, Any]:
    """The scoreboard over a corpus; ``only`` keeps the rows whose id begins so."""
    corrections = read_corrections()
    launches = asked(corpus, with_series)
    rows = [
        _scored(each, corrections.get(each.id, {})) for each in launches if not only or each.id.startswith(tuple(only))
    ]
    return {"summary": summary(left_out(rows)[0]), "rows": rows}


def asked(corpus: Path, with_series: bool = True) -> list[Launch | Apart]:
    """Every launch of a corpus, or why it is not asked about."""
    corrections = read_corrections()
    launches: list[Launch | Apart] = []
    for kind in ("started", "failing"):
        launches += reports(corpus, corrections, kind)
    return [*launches, *series(corpus)] if with_series else launches


def left_out(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], int]:
    """The rows that count, each without the constants that were fitted on its group, and how many that changed."""
    found, changed = folded(scored(rows), scored(rows, series=True))
    return list(found), changed


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
    packaged = scored(board["rows"])
    rows, changed = left_out(board["rows"])
    lines = ["Errors, predicted less logged, and how often the intervals hold what was logged", *_entry_lines(rows)]
    lines += ["", f"Summary{'left out':>34}{'as packaged':>13}"]
    lines += [
        f"  {name:24}{_shown(value):>15}{_shown(again):>13}"
        for (name, value), again in zip(board["summary"].items(), summary(packaged).values(), strict=True)
    ]
    lines += [f"  left out: fitted without the launch's model family, card and era; that moves {changed} launches"]
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
        f" ({row.get('why', 'reason not known')})"
        for row in rows
        if row["given_pool"] and not all(row["given_pool"].values())
    ]
    lines += ["", "Need and estimated length of failing starts, given the logged pool"]
    lines += [
        f"  {row['id']}: " + ", ".join(f"{name} {'equal' if right else 'differs'}" for name, right in told.items())
        for row in rows
        if (told := row.get("error_text"))
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
    return [f"  {reason}: {', '.join(ids)}" for reason, ids in _by_reason(apart).items()]


def _by_reason(apart: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in apart:
        found.setdefault(row["apart"][:_SAID], []).append(row["id"].split("-")[0])
    return found


def _entry_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [f"  {'':12}{'unit':>5}{'rows':>6}{'median':>10}{'90th':>10}{'worst':>10}{'in 80 %':>10}{'in 95 %':>10}"]
    for name in ENTRIES:
        found = entry_figures(rows, name)
        if found is not None:
            figures = "".join(f"{found[key]:>10.2f}" for key in _PERCENTILES)
            shares = "".join(f"{_shown(found[key]):>10}" for key in ("coverage_80", "coverage_95"))
            lines.append(f"  {name:12}{found['unit']:>5}{found['rows']:>6}{figures}{shares}")
    return lines


def entry_figures(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any] | None:
    """The figures of one entry over rows, None where no launch logged it."""
    errors = [abs(error) for error in entry_errors(rows, name)]
    if not errors:
        return None
    return {
        "unit": "GiB" if name in IN_GIB else "%",
        "rows": len(errors),
        **{key: round(percentile(errors, at), 4) for key, at in _PERCENTILES.items()},
        **{f"coverage_{share}": coverage(rows, name, share) for share in (80, 95)},
    }


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
    """What ``accuracy.json`` holds: the figures, also with the packaged constants, and one short row a launch."""
    rows, changed = left_out(board["rows"])
    return {
        "about": "Written by python -m benchmarks.accuracy --corpus DIR --write. Pools in GiB per GPU.",
        "summary": board["summary"],
        "as_packaged": summary(scored(board["rows"])),
        "changed": changed,
        "entries": {name: found for name in ENTRIES if (found := entry_figures(rows, name))},
        "series": _series_figures(board["rows"]),
        "not_asked": _by_reason(row for row in board["rows"] if "apart" in row and row["kind"] != "series"),
        "error_text": {row["id"]: row["error_text"] for row in rows if row.get("error_text")},
        "worst": {row["id"]: read_reasons().get(row["id"], "not known") for row in worst(rows)},
        "unequal": {
            row["id"]: row.get("why", "not known")
            for row in rows
            if row["given_pool"] and not all(row["given_pool"].values())
        },
        "rows": [_kept_row(row) for row in rows],
    }


def _series_figures(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    repeats = scored(rows, series=True)
    errors = [abs(error) for error in entry_errors(repeats, "available")]
    return {**summary(repeats), "worst": round(max(errors), 2) if errors else None}


def _kept_row(row: Mapping[str, Any]) -> list[Any]:
    pair = row["entries"].get("available")
    pool = [pair["logged"], round(pair["predicted"], 2)] if pair else [None, None]
    around = row["available"] if pair else None
    pool += [round(around["low"], 2), round(around["high"], 2)] if around else [None, None]
    model = row["model"].rsplit("/", 1)[-1]
    return [row["id"], row["release"], row["gpu"], model, *pool, row["verdict"]["said"], row["verdict"]["right"]]


def write(board: Mapping[str, Any], path: Path = KEPT) -> None:
    """Keep the figures, one launch a line."""
    data = kept(board)
    rows = ",\n".join(f"  {json.dumps(row)}" for row in data.pop("rows"))
    head = json.dumps(data, indent=1)
    path.write_text(f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n', "utf-8")


def write_launches(
    launches: Iterable[Launch | Apart], rows: Iterable[Mapping[str, Any]], path: Path = LAUNCHES
) -> None:
    """Keep the launches that count, as they are asked about, one a line."""
    counted = {row["id"] for row in rows}
    lines = [json.dumps(each.kept()) for each in launches if isinstance(each, Launch) and each.id in counted]
    about = "Public launches as kvroom is asked about them, with what they logged. Written by benchmarks.accuracy."
    text = ",\n".join(f"  {line}" for line in lines)
    path.write_text(f'{{\n "about": {json.dumps(about)},\n "launches": [\n{text}\n ]\n}}\n', "utf-8")


def read_launches(path: Path = LAUNCHES) -> list[Launch]:
    """The launches that were kept."""
    return [Launch.of(data) for data in json.loads(path.read_text("utf-8"))["launches"]]


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
    if options.write and options.case:
        parser.error("--write keeps all rows; leave --case out")
    board = run(options.corpus, options.case)
    print(json.dumps(board, indent=1) if options.json else table(board))
    if options.write:
        write(board)
        write_launches(asked(options.corpus, with_series=False), scored(board["rows"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
