"""The sizes that a log prints, folded over the ranks, and what it says of the pool."""

from __future__ import annotations

from collections.abc import Iterator

from kvroom.logs.facts import Fact, Facts
from kvroom.logs.reading import Measured, PoolRead
from kvroom.units import GIB

_PRINTED: dict[str, dict[str, str]] = {
    "budget_v0": {"total": "total", "requested": "requested"},
    "split_v0": {"weights": "weights", "other": "other", "activation": "activation", "available": "available"},
    "split_v0_part": {"other": "other", "activation": "activation", "available": "available"},
    "split_064": {"total": "total", "other": "other", "available": "available"},
    "split_debug": {"weights": "weights", "other": "other", "activation": "activation"},
    "weights": {"gib": "weights"},
    "available": {"gib": "available"},
    "reserved": {"free": "free", "available": "available"},
    "graph_estimate": {"gib": "graph_estimate"},
    "graph_done": {"gib": "graph_actual"},
    "graph_pool": {"actual": "graph_actual", "estimated": "graph_estimate"},
    "summary": {
        "free": "free",
        "total": "total",
        "requested": "requested",
        "weights": "weights",
        "activation": "activation",
        "other": "other",
        "graphs": "graph_actual",
    },
    "summary_consumed": {
        "free": "free",
        "total": "total",
        "requested": "requested",
        "consumed": "consumed",
        "activation": "activation",
        "graphs": "graph_actual",
    },
    "err_free": {"free": "free", "total": "total", "requested": "requested"},
    "err_free_external": {"free": "free", "total": "total", "requested": "requested"},
    "err_free_cpu": {"free": "free", "total": "total", "requested": "requested"},
    "free_prose": {"free": "free", "total": "total"},
    "free_v1_debug": {"free": "free", "requested": "requested", "requested2": "requested"},
    "err_bytes": {"available": "available"},
    "err_bytes_short": {"available": "available"},
    "err_metal": {
        "total": "total",
        "requested": "requested",
        "weights": "weights",
        "other": "other",
        "available": "available",
    },
    "in_use": {"available": "available"},
    "cpu_pool": {"available": "available", "total": "total"},
    "checkpoint": {"checkpoint": "checkpoint"},
    "told_pool": {"available": "available"},
    "told_pool_less": {"available": "available"},
    "told_only": {"available": "available"},
    "told_weights": {"weights": "weights"},
}
"""Which value of a message is which entry; all in units of 2**30 bytes."""
_LEAST_COUNTS = frozenset({"available", "free"})


def measured_of(facts: Facts) -> dict[str, Measured]:
    """The entries by name. Of what one process prints again the last counts, over processes the poorest."""
    printed: dict[str, dict[str, tuple[int, Fact, str]]] = {}
    for fact in facts:
        for name, text, size in _sizes(fact):
            if fact.id.startswith("told_") and name in printed:
                continue
            printed.setdefault(name, {})[fact.process] = (size, fact, text)
    return {name: _folded(name, ranks) for name, ranks in printed.items()}


def _sizes(fact: Fact) -> Iterator[tuple[str, str, int]]:
    for value, name in _PRINTED.get(fact.id, {}).items():
        number = fact.gib(value)
        if number is not None:
            yield name, fact.values[value], number
    if fact.id in {"oom", "oom_old"}:
        total = fact.size("total")
        if total:
            yield "total", fact.values["total"], total


def _folded(name: str, ranks: dict[str, tuple[int, Fact, str]]) -> Measured:
    choose = min if name in _LEAST_COUNTS else max
    value, fact, text = choose(ranks.values(), key=lambda item: item[0])
    sizes = [size for size, _, _ in ranks.values()]
    by_rank = {process: size for process, (size, _, _) in ranks.items()} if len(ranks) > 1 else {}
    return Measured(name, value, min(sizes), max(sizes), fact.line, text, by_rank)


def total_from_equivalence(facts: Facts) -> int | None:
    """The card's total memory from the sentence that converts the graph estimate into utilisation.

    ``estimate / (utilisation - equivalent)``: exact to a few percent, since both are printed rounded.
    """
    estimate = facts.number("gib", "graph_estimate")
    for fact in facts.all("graph_equivalent", "graph_equivalent_short"):
        util, equivalent = fact.number("util"), fact.number("equivalent")
        if estimate and util is not None and equivalent is not None and util > equivalent:
            return round(estimate / (util - equivalent) * GIB)
    return None


def pool_of(facts: Facts, block_size: int | None) -> PoolRead:
    """What the log says of the pool; of what is printed again the last counts."""
    blocks = _last(facts, "blocks", "blocks_info", "blocks_v1", "blocks_v0")
    override = next((fact.whole("new") for fact in reversed(facts.all("override")) if fact.whole("old")), None)
    tokens = _last(facts, "tokens", "tokens", "err_tokens", "err_tokens_short", "told_pool", "told_pool_change")
    length = _last(
        facts,
        "max_model_len",
        "err_bytes",
        "err_tokens",
        "err_tokens_short",
        "concurrency",
        "autofit_reduced",
        "autofit_full",
        "max_model_len",
        "told_pool",
        "told_chosen",
    )
    error = facts.last("err_bytes", "err_bytes_short")
    running = facts.last("concurrency") or facts.first("told_pool", "told_pool_change")
    return PoolRead(
        num_blocks=override if override is not None else blocks,
        block_size=block_size,
        tokens=tokens,
        max_concurrency=running.number("concurrency") if running else None,
        max_model_len=length,
        needed_bytes=error.gib("needed") if error else None,
        available_bytes=error.gib("available") if error else None,
        estimated_max_len=_last(facts, "estimated", "estimated_length", "told_estimate", "told_chosen"),
    )


def _last(facts: Facts, name: str, *ids: str) -> int | None:
    """The value ``name`` of the last fact of the first of ``ids`` that occurs."""
    for id_ in ids:
        fact = facts.last(id_)
        number = fact.whole(name) if fact else None
        if number is not None:
            return number
    return None
