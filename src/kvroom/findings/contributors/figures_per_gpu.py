"""KVR236: with tensor parallelism every figure of the log is of one GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument, shortage
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.values import whole_number
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR236",
    "figures-per-gpu",
    Severity.NOTE,
    "Memory in the log is per GPU; tokens and blocks are of the whole launch.",
    explanation(
        what="Says so where a launch over several GPUs lacked room for its cache.",
        why="""
            With tensor parallelism each GPU holds a part of every weight and of every token's cache.
            "Model loading took" and "available KV cache memory" are of one GPU. A block exists on all of them
            at once: tokens and blocks must not be multiplied by their number.
            """,
        example="""
            Two GPUs, 13.95 GiB of weights each, 8.69 GiB left on each: 17.38 GiB of cache in all, and 81,536
            tokens, not twice as many.
            """,
        cure="Nothing to change; compare needs and room for one GPU.",
        since="All releases.",
        references="`vllm/v1/core/kv_cache_utils.py: get_kv_cache_configs`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding where the cache lacked room and sizes are printed."""
    ranks = (
        whole_number(argument(case, "tensor_parallel_size")) or whole_number(case.setting("tensor_parallel_size")) or 1
    )
    lack = shortage(case)
    weights, left = case.reading.size("weights"), case.reading.size("available")
    if ranks < 2 or lack is None or (not weights and (left is None or left <= 0)):
        return
    parts = [
        f"{show_bytes(size)} {what} ({show_bytes(size * ranks)} on {ranks})"
        for size, what in ((weights, "of weights"), (left, "for the KV cache"))
        if size is not None and size > 0
    ]
    yield RULE.found(
        f"The sizes are of one GPU: {' and '.join(parts)}.",
        "Tokens and blocks are of the whole launch: each is spread over all GPUs.",
        evidence=(shown(lack.fact),),
    )
