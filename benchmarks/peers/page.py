"""The table of all planners, as text and for ``docs/accuracy.md``; standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("peers_scores.json")
LIST = Path(__file__).with_name("peers.json")
_COLUMNS = {
    "pool_median_gib": "median, GiB",
    "pool_median_percent": "median, %",
    "pool_within_half_gib": "within 0.5 GiB",
    "over_promised_1gib": "over-promised > 1 GiB",
    "weights_median_percent": "weights, median, %",
    "verdict_right": "verdict right",
}
_SECTION = """
## Other planners

`python -m benchmarks.peers --corpus DIR` installs published planners from the package index, each in an environment of
its own, and asks them about the same launches; `benchmarks/peers/peers_scores.json` keeps every answer.
Each gets what vLLM would resolve (utilisation, length, batched tokens), the total that torch reports of the card, and
the sizes of the checkpoint from kvroom's own list of its weights; `benchmarks/peers/peers.json` says how each was
asked.
Figures are over what a planner answered, of {pools} logged pools, {weights} weights and {verdicts} outcomes
({starts} of which came up, so that always answering yes is right for {always:.0%}).
In kvroom's favour: its constants were read off logs of which these are a part (its second line is without each launch's
own group), and launches that it cannot plan are not among them.

{table}
`*`: it states no pool; its weights are taken off the budget.
"kvroom there": kvroom's median error on just the pools that the planner answered.
{missing}"""

_MISSING = "\nNot answered, with the most frequent reason, in the planner's own words where it has some:\n\n"


def side_by_side(kept: Mapping[str, Any] | None = None, listed: Mapping[str, Any] | None = None) -> str:
    """The section of the page; of the kept figures where none are given."""
    kept = json.loads(KEPT.read_text("utf-8")) if kept is None else kept
    listed = json.loads(LIST.read_text("utf-8"))["peers"] if listed is None else listed
    asked = kept["asked"]
    missing = [f"- {name}: {reason}\n" for name, reason in reasons(kept).items()]
    text = _MISSING + "".join(missing) if missing else ""
    return _SECTION.format(
        **asked, always=asked["starts"] / asked["verdicts"], table=markdown(kept, listed), missing=text
    )


def lines_of(kept: Mapping[str, Any], listed: Mapping[str, Any]) -> list[list[str]]:
    """The table's cells, the head first: kvroom, kvroom with refitted constants, then peers by their median."""
    asked = kept["asked"]
    lines = [["planner", "pools", *_COLUMNS.values(), "kvroom there, GiB"]]
    for name, found in kept["kvroom"].items():
        lines.append([name, _of(found, asked), *_cells(found), ""])
    ranked = sorted(kept["peers"].items(), key=lambda item: _rank(item[1]))
    for name, found in ranked:
        title = f"{name} {found['version']}"
        if "not_installable" in found:
            lines.append([title, f"not installable: {found['not_installable']}", *[""] * (len(_COLUMNS) + 1)])
            continue
        mark = "*" if listed[name]["pool"] == "derived" else ""
        beside = found["kvroom_on_its_pools"]["pool_median_gib"]
        lines.append([title + mark, _of(found, asked), *_cells(found), _shown("_gib", beside)])
    return lines


def _rank(found: Mapping[str, Any]) -> float:
    median = found.get("pool_median_gib")
    return float("inf") if median is None else float(median)


def _of(found: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    return f"{found['answered']['pools']} of {asked['pools']}"


def _cells(found: Mapping[str, Any]) -> list[str]:
    cells = [_shown(name, found[name]) for name in _COLUMNS]
    counts = found["answered"]
    cells[-2] += f" ({counts['weights']})" if counts["weights"] else ""
    cells[-1] += f" ({counts['verdicts']})" if counts["verdicts"] else ""
    return cells


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name.endswith("_percent"):
        return f"{value:.2f}" if value < 1 else f"{value:.1f}"
    return f"{value:.2f}" if name.endswith("_gib") and "half" not in name else f"{100 * value:.0f} %"


def markdown(kept: Mapping[str, Any], listed: Mapping[str, Any]) -> str:
    """The table in Markdown."""
    head, *rows = lines_of(kept, listed)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def text(kept: Mapping[str, Any], listed: Mapping[str, Any]) -> str:
    """The table for a terminal, and why launches were not answered."""
    rows = lines_of(kept, listed)
    widths = [max(len(row[at]) for row in rows if len(row[1]) < 20) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["", "(n): how many weights and verdicts were answered; *: its weights taken off the budget", ""]
    lines += [f"{name}: {reason}" for name, reason in reasons(kept).items()]
    return "\n".join(lines)


def reasons(kept: Mapping[str, Any]) -> dict[str, str]:
    """For each peer that left launches out, how many and the most frequent reason."""
    found = {}
    for name, figures in kept["peers"].items():
        silent = figures.get("unanswered") or {}
        if silent:
            first = next(iter(silent))
            count = sum(silent.values())
            most = f", {silent[first]} of them" if len(silent) > 1 else ""
            found[name] = f"{count} launch{'es' if count > 1 else ''}{most}: {first}"
    return found
