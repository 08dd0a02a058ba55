"""Figures of each peer over the launches it answered, by the arithmetic of ``benchmarks.accuracy_score``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.accuracy_score import summary
from kvroom.units import GIB

Row = Mapping[str, Any]
FIGURES = (
    "pool_median_gib",
    "pool_median_percent",
    "pool_within_half_gib",
    "over_promised_1gib",
    "weights_median_percent",
    "verdict_right",
)


def peer_row(row: Row, answer: Row) -> dict[str, Any]:
    """``row`` of the scoreboard with what a peer said in the place of kvroom's figures."""
    entries, observed = {}, row["verdict"]["observed"]
    for name, key in (("available", "pool"), ("weights", "weights")):
        if name in row["entries"] and answer.get(key) is not None:
            entries[name] = {"logged": row["entries"][name]["logged"], "predicted": round(answer[key] / GIB, 4)}
    fits = answer.get("fits")
    right = None if fits is None or observed is None else fits == (observed == "starts")
    pool = entries.get("available", {}).get("predicted")
    around = None if pool is None else {"low": pool, "expected": pool, "high": pool}
    return {"id": row["id"], "entries": entries, "available": around, "given_pool": None, "verdict": {"right": right}}


def counted(rows: Iterable[Row]) -> dict[str, int]:
    """How many pools, weights and verdicts there are to judge."""
    rows = list(rows)
    return {
        "pools": sum("available" in row["entries"] for row in rows),
        "weights": sum("weights" in row["entries"] for row in rows),
        "verdicts": sum(row["verdict"]["right"] is not None for row in rows),
    }


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """What was answered and how well."""
    found = summary(rows)
    return {"answered": counted(rows), **{name: found[name] for name in FIGURES}}


def scored(rows: Sequence[Row], answers: Mapping[str, Row]) -> dict[str, Any]:
    """A peer's figures, kvroom's (``rows``) on the pools that it answered, its answers, and why some are missing."""
    own = [peer_row(row, answers[row["id"]]) for row in rows if row["id"] in answers]
    with_pool = {row["id"] for row in own if "available" in row["entries"]}
    beside = summary([row for row in rows if row["id"] in with_pool])
    silent = Counter(answer["unanswered"] for answer in answers.values() if "unanswered" in answer)
    return {
        **figures(own),
        "kvroom_on_its_pools": {name: beside[name] for name in FIGURES[:4]},
        "unanswered": dict(silent.most_common()),
        "rows": {
            key: [_gib(answer.get("weights")), _gib(answer.get("pool")), answer.get("fits")]
            for key, answer in answers.items()
            if "unanswered" not in answer
        },
    }


def _gib(size: float | None) -> float | None:
    return None if size is None else round(size / GIB, 3)
