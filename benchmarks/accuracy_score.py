"""How near a plan is to what a start logged: one row, and figures over many.

Sizes are compared in GiB, predicted less logged. What the log prints is rounded to 0.01 GiB, so that two questions
are asked of the pool: how far the predicted bytes are from the logged ones, and, apart from any error in them,
whether the logged bytes would have given the logged blocks and tokens (``given_pool``): the launch is planned again
with the logged bytes as measured, and is right where some number of bytes that rounds to the logged figure gives
exactly the logged number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.accuracy_group import group_of, spread_of
from benchmarks.launches import Launch
from kvroom.ledger.entries import Entry
from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Status
from kvroom.plans.plan import Plan
from kvroom.units import GIB

Ask = Callable[[Mapping[str, int] | None], Plan]
"""The plan of a launch given measured entries."""

_LEDGER = {
    "weights": "weights_gib",
    "activation": "activation_gib",
    "other": "non_torch_gib",
    "cuda_graphs": "graph_estimated_gib",
    "available": "kv_available_gib",
}
"""Ledger entries and what a log calls them; the graphs' entry is vLLM's estimate, not what they took."""
_POOL = {
    "blocks": ("gpu_blocks", "num_blocks"),
    "tokens": ("kv_tokens", "tokens"),
    "concurrency": ("concurrency", "max_concurrency"),
    "needed": ("kv_needed_gib", "needed_bytes"),
    "length": ("estimated_max_len", "estimated_length"),
}
ENTRIES = (*_LEDGER, *_POOL)
IN_GIB = (*_LEDGER, "needed")
_ROUNDED = 0.005 * GIB
HALF_GIB, ONE_GIB = 0.5, 1.0


def score(launch: Launch, ask: Ask) -> dict[str, Any]:
    """One row: what was logged and predicted, and whether the verdict and the blocks are right.

    A KvroomError where kvroom cannot be asked.
    """
    plan = ask(None)
    found, logged = plan.prediction, launch.observed
    row: dict[str, Any] = {
        "id": launch.id,
        "kind": launch.kind,
        "release": launch.release,
        "gpu": launch.gpu,
        "model": found.setup.args.model,
        "group": group_of(found),
        "entries": dict(_compared(found, logged)),
        "available": None,
        "ledger": {entry.name: entry.expected / GIB for entry in found.ledger} if found.ledger else None,
        "spread": spread_of(found),
        "verdict": _verdict(plan, launch, ask),
        "given_pool": _given_pool(launch, ask) if found.pool else None,
        "error_text": _error_text(launch, ask) if found.pool else None,
    }
    if found.ledger is not None:
        row["around"] = {entry.name: _around(entry) for entry in found.ledger}
        row["available"] = row["around"]["available"]
    return row


def _around(entry: Entry) -> dict[str, float]:
    """An entry's expected size and its intervals for 80 and 95 of 100 launches, in GiB."""
    ends = ("low95", "low", "expected", "high", "high95")
    return {end: getattr(entry, end) / GIB for end in ends}


def _compared(found: Prediction, logged: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Entries that were both logged and predicted."""
    if found.ledger is None or found.pool is None:
        return
    for name, key in _LEDGER.items():
        if logged.get(key) is not None and not (name == "cuda_graphs" and found.ledger.cuda_graphs.expected == 0):
            yield name, _pair(logged[key], found.ledger.entry(name).expected / GIB)
    for name, (key, attribute) in _POOL.items():
        said = logged.get(key)
        if said is not None:
            value = getattr(found.pool, attribute)
            yield name, _pair(said, value / GIB if name in IN_GIB else value)


def _pair(logged: float, predicted: float) -> dict[str, float]:
    return {"logged": logged, "predicted": round(predicted, 4)}


def _verdict(plan: Plan, launch: Launch, ask: Ask) -> dict[str, Any]:
    """What was said and what happened; ``right`` is None where the report does not show what happened.

    A ``tight`` verdict counts as what happens at the expected values.
    """
    status = plan.prediction.verdict.status
    expected = status is Status.FITS
    if status is Status.TIGHT and plan.prediction.ledger is not None:
        sizes = {entry.name: entry.expected for entry in plan.prediction.ledger if entry.name != "requested"}
        sizes["total"] = plan.prediction.setup.machine.device.total_bytes
        expected = ask(sizes).prediction.verdict.status is Status.FITS
    return {
        "said": str(status),
        "expected": "starts" if expected else "fails",
        "observed": None if launch.starts is None else "starts" if launch.starts else "fails",
        "right": None if launch.starts is None else expected == launch.starts,
    }


def _given_pool(launch: Launch, ask: Ask) -> dict[str, bool] | None:
    """Whether blocks and tokens follow from the pool that was logged; None where either was not."""
    logged = launch.observed
    pool = logged.get("kv_available_gib")
    figures = {name: logged[key] for name, (key, _) in _POOL.items() if logged.get(key) is not None}
    if pool is None or not {"blocks", "tokens"} & figures.keys():
        return None
    names = {"blocks": "num_blocks", "tokens": "tokens"}
    return {name: _reached(pool, ask, names[name], figures[name]) for name in names if name in figures}


def _error_text(launch: Launch, ask: Ask) -> dict[str, bool] | None:
    """Whether the need and the longest length of a failing start's text follow from the pool that it logged."""
    logged = launch.observed
    pool = logged.get("kv_available_gib")
    figures = {name: logged[key] for name in ("needed", "length") if (key := _POOL[name][0]) and logged.get(key)}
    if pool is None or not figures:
        return None
    right = {}
    if "needed" in figures:
        found = ask({"available": int(pool * GIB)}).prediction.pool
        right["needed"] = found is not None and round(found.needed_bytes / GIB, 2) == round(figures["needed"], 2)
    if "length" in figures:
        right["length"] = _reached(pool, ask, "estimated_length", figures["length"])
    return right


def _reached(logged: float, ask: Ask, name: str, figure: float) -> bool:
    """Whether some number of bytes that rounds to ``logged`` GiB gives ``figure``, which grows with the bytes."""
    low, high = int(logged * GIB - _ROUNDED), int(logged * GIB + _ROUNDED)
    while low <= high:
        middle = (low + high) // 2
        pool = ask({"available": middle}).prediction.pool
        found = getattr(pool, name) if pool is not None else None
        if found is None or found < figure:
            low = middle + 1
        elif found > figure:
            high = middle - 1
        else:
            return True
    return False


def summary(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of the scoreboard, shares of 1; None where nothing was to judge."""
    rows = list(rows)
    pools = [(row["entries"]["available"], row["available"]) for row in rows if "available" in row["entries"]]
    errors = [pair["predicted"] - pair["logged"] for pair, _ in pools]
    equal = [all(row["given_pool"].values()) for row in rows if row["given_pool"]]
    right = [row["verdict"]["right"] for row in rows if row["verdict"]["right"] is not None]
    weights = [_percent(row["entries"]["weights"]) for row in rows if "weights" in row["entries"]]
    return {
        "rows": len(rows),
        "pool_median_gib": _median(abs(error) for error in errors),
        "pool_median_percent": _median(_percent(pair) for pair, _ in pools),
        "pool_within_half_gib": _share(abs(error) <= HALF_GIB for error in errors),
        "over_promised_1gib": _share(error > ONE_GIB for error in errors),
        "blocks_equal": _share(equal),
        "verdict_right": _share(right),
        "weights_median_percent": _median(weights),
        "coverage_80": _share(
            around["low"] - 0.005 <= pair["logged"] <= around["high"] + 0.005 for pair, around in pools
        ),
        "half_width_80_gib": _median((around["high"] - around["low"]) / 2 for _, around in pools),
    }


def entry_errors(rows: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    """Predicted less logged of one entry: GiB, or percent of what is counted rather than measured in bytes."""
    pairs = [row["entries"][name] for row in rows if name in row["entries"]]
    if name in IN_GIB:
        return [pair["predicted"] - pair["logged"] for pair in pairs]
    return [100 * (pair["predicted"] - pair["logged"]) / pair["logged"] for pair in pairs if pair["logged"]]


def coverage(rows: Iterable[Mapping[str, Any]], name: str, share: int) -> float | None:
    """The share of launches whose logged entry lies inside the interval for ``share`` percent."""
    ends = ("low95", "high95") if share == 95 else ("low", "high")
    held = []
    for row in rows:
        pair = row["entries"].get(name)
        around = row["available"] if name == "available" else (row.get("around") or {}).get(name)
        if pair is not None and around is not None and ends[0] in around:
            low, high = (around[end] for end in ends)
            held.append(low - 0.005 <= pair["logged"] <= high + 0.005)
    return _share(held)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that ``share`` of them do not exceed.

    >>> percentile([4, 1, 3, 2], 0.5), percentile(range(1, 11), 0.9)
    (2, 9)
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _percent(pair: Mapping[str, float]) -> float:
    return 100 * abs(pair["predicted"] - pair["logged"]) / max(abs(pair["logged"]), 0.01)


def _median(values: Iterable[float]) -> float | None:
    listed = list(values)
    return round(median(listed), 4) if listed else None


def _share(answers: Iterable[bool]) -> float | None:
    listed = list(answers)
    return round(sum(listed) / len(listed), 4) if listed else None
