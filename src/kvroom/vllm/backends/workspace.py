"""Buffers that attention backends allocate for themselves, and which of vLLM's measurements sees them.

FlashInfer's is the one that decides launches: from 0.20 on it is inside the graph estimate, and so takes
its size from the KV cache; before, it is allocated after the cache, outside the budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kvroom.vllm.args import EngineArgs
from kvroom.vllm.backends.question import Question
from kvroom.vllm.settings import Settings

BATCH_INVARIANT_BYTES = 2048 << 20
"""FlashInfer's workspace with VLLM_BATCH_INVARIANT (v1/attention/backends/flashinfer.py)."""
_FAMILY = {"TRITON_FLASHINFER": "FLASHINFER"}


class Workspace(NamedTuple):
    """Bytes inside and outside the budget, the measurements that see the former, and why."""

    inside: int = 0
    outside: int = 0
    seen_in: str = ""
    why: str = ""


def workspace(
    name: str, imported: Iterable[str], asks: tuple[Question, ...], args: EngineArgs, settings: Settings
) -> Workspace:
    """The buffers of backend ``name``.

    ``imported`` are the backends whose modules vLLM loads while choosing: some allocate on import, chosen
    or not. FlashInfer takes one workspace for each group of layers under model runner V1 (here: for each
    kind of attention layer), one in all under V2 or with TRT-LLM kernels (10.x).
    """
    rule = settings.rules["backend.workspace"]
    inside = outside = 0
    seen: list[str] = []
    for other in dict.fromkeys((name, *imported)):
        entry = rule.get(_FAMILY.get(other, other))
        if entry is None or (other.startswith("FLASHINFER") and "flashinfer" in asks[0].without):
            continue
        if entry["place"] == "load":
            inside += entry["bytes"]
            seen.append("load")
        elif other == name:
            size = _size(entry, asks, args, settings)
            if entry["place"] == "graphs" and _graphs_count(entry, args, settings):
                inside += size
                seen.append("graphs")
            else:
                outside += size
    why = settings.rules.rule("backend.workspace").source if inside or outside else ""
    return Workspace(inside, outside, " and ".join(dict.fromkeys(seen)), why)


def _size(entry: dict[str, Any], asks: tuple[Question, ...], args: EngineArgs, settings: Settings) -> int:
    size = int(entry["bytes"])
    stated = args.env.get(entry.get("env", ""), "")
    if stated.isdecimal():
        size = int(stated)
    first = asks[0]
    trtllm = first.major == 10
    if first.batch_invariant and not entry.get("shared"):
        size = BATCH_INVARIANT_BYTES
    elif "per_element" in entry and not trtllm:
        widest = max(ask.layer.head_size for ask in asks)
        size = max(size, settings.max_num_batched_tokens * first.heads * widest * entry["per_element"])
    alone = entry.get("shared") or settings.model_runner == "V2" or trtllm
    return size if alone else size * len(asks)


def _graphs_count(entry: dict[str, Any], args: EngineArgs, settings: Settings) -> bool:
    """Whether this launch estimates its graphs by capturing one that plans attention, and subtracts that."""
    default = "1" if entry["graphs_default"] else "0"
    applied = args.env.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", default) not in {"", "0"}
    captures = bool(settings.capture_sizes) and "FULL" in settings.cudagraph_mode
    return applied and captures and settings.model_runner in entry["runners"]
