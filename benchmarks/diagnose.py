"""How often ``kvroom diagnose`` is right about real logs: ``python -m benchmarks.diagnose --corpus DIR [--json]``.

DIR holds ``failing/*.json`` and ``started/*.json`` (reports with their log lines) and ``log-samples/*.log``. What is
judged and when is said in ``benchmarks.diagnose_score``; how the corpus's names are read, in ``diagnose_map.json``.
Cases whose cause the report itself states are scored first, the others apart. A started launch or a healthy sample
with a finding of severity error, or the verdict "fails", is a false alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.diagnose_cases import Case, failing, samples, started
from benchmarks.diagnose_score import false_alarm, judged, read_map, score, summary

Diagnose = Callable[[Case], tuple[dict[str, Any], str]]
"""The diagnosis of a case as JSON data, and what had to be left out or went wrong."""

_GIVEN_UP = ("model", "command", "vllm", "gpu", "env")
"""What is left out, one after another, where kvroom refuses it."""
_FIGURES = ("stage_right", "cause_right", "numbers_exact", "cure_in_first_two")


def ask(case: Case) -> tuple[dict[str, Any], str]:
    """What kvroom says about a case, offline; a crash is a diagnosis that says nothing."""
    import kvroom
    from kvroom.errors import KvroomError
    from kvroom.report import diagnosis_json

    asked = dict(case.asked)
    refused: list[str] = []
    given_up = [name for name in _GIVEN_UP if name in asked]
    while True:
        try:
            return diagnosis_json.diagnosis_data(kvroom.diagnose(case.log, offline=True, **asked)), "; ".join(refused)
        except KvroomError as error:
            if not given_up:
                return {}, "; ".join([*refused, str(error)])
            asked.pop(given_up[0])
            refused.append(f"without {given_up.pop(0)}: {error}")
        except Exception as error:  # noqa: BLE001  one crash must not hide the other cases
            return {}, "; ".join([*refused, f"{type(error).__name__}: {error}"])


def run(corpus: Path, diagnose: Diagnose = ask, only: Sequence[str] = ()) -> dict[str, Any]:
    """The scoreboard over a corpus; ``only`` keeps the cases whose id begins so."""
    names = read_map()
    rows = [
        {"kind": "failing", **score(case, said, names), "note": note}
        for case, said, note in _asked(failing(corpus), diagnose, only)
    ]
    healthy = [
        {"kind": "started", "id": case.id, "note": note, **_alarm(said)}
        for case, said, note in _asked(started(corpus), diagnose, only)
        if case.id not in names["started"]
    ]
    shown = []
    for case, said, note in _asked(samples(corpus), diagnose, only):
        expected = names["samples"].get(case.id)
        row = {"kind": "sample", "id": case.id, "note": note}
        if expected == "healthy":
            healthy.append({**row, **_alarm(said)})
        elif expected:
            shown.append({**row, **judged(expected["stages"], expected["causes"], said)})
    alarms = sum(row["false_alarm"] for row in healthy)
    return {
        "summary": {**summary(rows), "healthy": len(healthy), "false_alarms": alarms},
        "summary_stated": summary(row for row in rows if row["stated"]),
        "summary_others": summary(row for row in rows if not row["stated"]),
        "summary_samples": summary(shown),
        "rows": [*rows, *shown, *healthy],
    }


def _asked(
    cases: Iterable[Case], diagnose: Diagnose, only: Sequence[str]
) -> Iterable[tuple[Case, dict[str, Any], str]]:
    for case in cases:
        if not only or case.id.startswith(tuple(only)):
            yield case, *diagnose(case)


def _alarm(said: Mapping[str, Any]) -> dict[str, Any]:
    codes = [finding["code"] for finding in said.get("findings") or [] if finding["severity"] == "error"]
    return {"false_alarm": false_alarm(said), "errors": codes, "verdict": (said.get("verdict") or {}).get("status")}


def table(board: Mapping[str, Any]) -> str:
    """The scoreboard as text: shares, then what was missed, then what could not be judged."""
    lines = [f"{'':18}{'cases':>6}" + "".join(f"{name:>24}" for name in _FIGURES)]
    for title, key in (("stated", "_stated"), ("others", "_others"), ("all failing", ""), ("log samples", "_samples")):
        lines.append(_summary_line(title, board["summary" + key]))
    whole = board["summary"]
    lines.append(f"false alarms: {whole['false_alarms']} of {whole['healthy']} healthy logs")
    for title, group in (
        ("Missed, cause stated in the report", [row for row in board["rows"] if row.get("stated")]),
        ("Missed, others", [row for row in board["rows"] if row["kind"] == "failing" and not row["stated"]]),
        ("Missed, samples and healthy logs", [row for row in board["rows"] if row["kind"] != "failing"]),
    ):
        missed = [line for row in group for line in _misses(row)]
        lines += ["", f"{title}: {len(missed)}", *missed]
    apart = [row for row in board["rows"] if row["kind"] == "failing" and row["stage"]["right"] is None]
    lines += ["", f"Lines that do not show where it stopped: {len(apart)}"]
    lines += [
        f"  {row['id']}: says {row['stage']['said']}, {', '.join(row['cause']['said']) or 'no finding'}"
        for row in apart
    ]
    noted = [row for row in board["rows"] if row["note"]]
    lines += ["", f"Left out or gone wrong: {len(noted)}", *(f"  {row['id']}: {row['note'][:160]}" for row in noted)]
    return "\n".join(lines)


def _summary_line(title: str, figures: Mapping[str, Any]) -> str:
    counts = figures["judged"]
    cells = []
    for name, key in zip(_FIGURES, ("stage", "cause", "numbers", "cure"), strict=True):
        share = figures[name]
        cells.append("-" if share is None else f"{share:.3f} of {counts[key]}")
    return f"{title:18}{figures['cases']:>6}" + "".join(f"{cell:>24}" for cell in cells)


def _misses(row: Mapping[str, Any]) -> Iterable[str]:
    for key in ("stage", "cause"):
        part = row.get(key) or {}
        if part.get("right") is False:
            wanted = "/".join(part["wanted"]) or "no error"
            said = part["said"] if isinstance(part["said"], str) else ", ".join(part["said"] or ()) or "nothing"
            yield f"  {row['id']}: {key} {wanted}, says {said}"
    missed = (row.get("numbers") or {}).get("missed")
    if missed:
        yield f"  {row['id']}: numbers " + ", ".join(f"{key} {value}" for key, value in missed.items())
    cure = row.get("cure") or {}
    if cure.get("right") is False:
        offers = " | ".join("+".join(offer) or "words" for offer in cure["offered"]) or "nothing"
        yield f"  {row['id']}: cure {'/'.join(cure['wanted'])}, offers {offers}"
    if row.get("false_alarm"):
        yield f"  {row['id']}: false alarm, {', '.join(row['errors']) or 'verdict'} ({row['verdict']})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scoreboard."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.diagnose", description="Score kvroom diagnose on a corpus."
    )
    parser.add_argument(
        "--corpus", type=Path, required=True, metavar="DIR", help="holds failing/, started/, log-samples/"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--case", action="append", default=[], metavar="ID", help="only cases whose id begins so")
    options = parser.parse_args(arguments)
    if not (options.corpus / "failing").is_dir():
        parser.error(f"{options.corpus} has no folder failing/")
    board = run(options.corpus, only=options.case)
    print(json.dumps(board, indent=1) if options.json else table(board))
    return 0


if __name__ == "__main__":
    sys.exit(main())
