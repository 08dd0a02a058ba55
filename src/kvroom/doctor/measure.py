"""The prediction of a log's launch moved by what the log measured, so that changes are priced on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvroom.errors import KvroomError
from kvroom.logs.reading import Reading
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request
from kvroom.units import GIB

_ENTRIES = ("weights", "activation", "other", "available")


def moved_by_log(
    predicted: Plan, words: Sequence[str], env: Mapping[str, str], request: Request, reading: Reading
) -> Plan:
    """The plan moved by what the log measured; the plain one where it measured nothing."""
    measured = {name: size for name in _ENTRIES if (size := reading.size(name)) is not None}
    counted = reading.size("graph_estimate")
    if counted is not None and predicted.prediction.ledger and predicted.prediction.ledger.cuda_graphs.expected:
        measured["cuda_graphs"] = counted
    total = reading.measured.get("total")
    if total is not None and total.value > 0:
        measured["total"] = total.value
    measured = {name: size for name, size in measured.items() if size >= 0 or name == "available"}
    if reading.settings.get("kv_cache_memory_bytes"):
        measured.pop("available", None)
    if not measured:
        return predicted
    free = reading.free_bytes
    free_memory = f"{free / GIB:.4f}GiB" if free and (total is None or free <= total.value) else None
    asked = replace(request, measured=measured, free_memory=free_memory)
    try:
        plan = plan_tokens(words, env, asked)
        return _counted(plan, words, env, asked, reading)
    except KvroomError:
        return predicted


def _counted(plan: Plan, words: Sequence[str], env: Mapping[str, str], asked: Request, reading: Reading) -> Plan:
    """The plan with the pool that the log counted, where its blocks say something else than its bytes.

    A rank with less, or a size printed with few digits, shows in the count alone.
    """
    layout, pool = plan.prediction.layout, plan.prediction.pool
    blocks = reading.pool.num_blocks
    if blocks is None and reading.facts.first("err_tokens", "err_tokens_short") and reading.pool.tokens and layout:
        blocks = reading.pool.tokens // layout.block_size
    if not blocks or layout is None or pool is None or not layout.bytes_per_block or blocks == pool.num_blocks:
        return plan
    if "num_gpu_blocks_override" in reading.settings or plan.prediction.setup.args.num_gpu_blocks_override:
        return plan
    measured = {**(asked.measured or {}), "available": blocks * layout.bytes_per_block}
    return plan_tokens(words, env, replace(asked, measured=measured))
