"""A start as vLLM's own objects tell it, in plain values: settings, what the workers measured, the pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvroom.plugin.table import Table
from kvroom.plugin.worker import at, measured

PARTS = ("weights", "activation", "other", "cuda_graphs")
_PATIENCE = 20.0
"""Seconds that the workers of a start that failed have for an answer; those of one that came up just gave some."""


@dataclass(frozen=True, slots=True)
class Start:
    """What is known of one start. Sizes are bytes per GPU, those of the worker with the least left for the cache."""

    version: str
    model: str
    flags: Mapping[str, Any]
    """Resolved settings under vLLM's names."""
    env: Mapping[str, str]
    """The ``VLLM_*`` variables."""
    sizes: Mapping[str, int]
    """``requested``, ``weights``, ``activation``, ``other``, ``cuda_graphs``, ``available``, ``total``, ``free``."""
    length_asked: bool = True
    """Whether somebody set ``max_model_len``; without, it is the model's."""
    pool_bytes: int | None = None
    """What the planner was given; less than ``available`` where vLLM keeps some for other processes."""
    workers: tuple[Mapping[str, Any], ...] = ()
    backends: tuple[str, ...] = ()
    asked_backend: str = ""
    """The attention backend that was asked for, and by what: ``FLASHINFER by --attention-backend``."""
    device: str = ""
    capability: tuple[int, int] | None = None
    platform: str = ""
    """``cuda``, ``rocm``, ``cpu``, ..."""
    gpus: int = 1
    data_rank: int = 0
    """Of several engines with data parallelism: which; the first alone reports."""
    pool: Mapping[str, Any] = field(default_factory=dict)
    """``blocks``, ``tokens``, ``max_concurrency``, ``max_model_len`` of a start that came up."""
    problems: tuple[str, ...] = ()
    """Why something is not known."""


def start_of(
    core: Any, config: Any, version: str, table: Table, environ: Mapping[str, str], found: Any = None
) -> Start:
    """What is known of the start of ``core``; ``found`` is what sizing the cache returned, None where it failed."""
    problems: list[str] = []
    workers = _workers(core, config, version, table, problems, failed=found is None)
    ranks = [_sizes(raw, table.activation_holds_graphs(version)) for raw in workers]
    first = _whole(getattr(core, "available_gpu_memory_for_kv_cache", None))
    sizes = min(ranks, key=_left, default={}).copy()
    pool_bytes = first
    if first is not None and ranks and "available" in ranks[0] and "available" in sizes:
        pool_bytes = sizes["available"] + first - ranks[0]["available"]
    if first is not None:
        sizes.setdefault("available", first)
    platform = _platform(config)
    util = at(config, "cache_config.gpu_memory_utilization")
    if platform == "cpu" and "total" not in sizes and "requested" in sizes and util:
        sizes["total"] = int(sizes["requested"] / util)
    capability = next((each["capability"] for each in workers if "capability" in each), None)
    return Start(
        version=version,
        model=str(at(config, "model_config.model") or ""),
        flags=_flags(config, table, platform, failed=found is None),
        length_asked=at(config, "model_config.original_max_model_len") is not None,
        env={name: value for name, value in environ.items() if name.startswith("VLLM_")},
        sizes=sizes,
        pool_bytes=pool_bytes,
        workers=tuple(workers),
        backends=tuple(dict.fromkeys(name for each in workers for name in each.get("backends", ()))),
        asked_backend=_asked(config, environ),
        device=next((each["device"] for each in workers if each.get("device")), ""),
        capability=(capability[0], capability[1]) if capability else None,
        platform=platform,
        gpus=_whole(at(config, "parallel_config.world_size")) or 1,
        data_rank=_whole(at(config, "parallel_config.data_parallel_rank")) or 0,
        pool=_pool(config, found),
        problems=tuple(problems),
    )


def _workers(
    core: Any, config: Any, version: str, table: Table, problems: list[str], *, failed: bool
) -> list[Mapping[str, Any]]:
    """What each worker answers; nothing where asking is not known to be safe."""
    executor: Any = getattr(core, "model_executor", None)
    kind = type(executor).__name__
    if not table.knows(version):
        problems.append(f"vLLM {version or 'of an unknown release'} is none that the plugin was tested with")
    elif kind not in table.executors or (_whole(at(config, "parallel_config.nnodes")) or 1) > 1:
        problems.append(f"the workers of {kind} on {at(config, 'parallel_config.nnodes') or 1} nodes are not asked")
    else:
        try:
            wanted = {name: list(paths) for name, paths in table.worker.items()}
            answers = executor.collective_rpc(measured, timeout=_PATIENCE if failed else None, args=(wanted,))
            problems += [each["problem"] for each in answers if "problem" in each][:1]
            return [each for each in answers if isinstance(each, Mapping)]
        except Exception as error:  # noqa: BLE001 - the rest is known without them
            problems.append(f"the workers gave no answer ({type(error).__name__}: {error})"[:300])
    return []


def _sizes(raw: Mapping[str, Any], holds_graphs: bool) -> dict[str, int]:
    """The ledger of one worker: what is no weight, activation or graph of what it took is ``other``."""
    sizes = {name: raw[name] for name in ("requested", "weights", "available", "total", "free") if name in raw}
    if "activation" not in raw:
        return sizes
    graphs = raw.get("graph_estimate", 0) if raw.get("graphs_counted") else 0
    sizes["cuda_graphs"] = graphs
    sizes["activation"] = max(raw["activation"] - (graphs if holds_graphs else 0), 0)
    if {"requested", "weights", "available"} <= sizes.keys():
        parts = sizes["weights"] + sizes["activation"] + graphs
        sizes["other"] = max(sizes["requested"] - sizes["available"] - parts, 0)
    return sizes


def _left(sizes: Mapping[str, int]) -> int:
    return sizes.get("available", 1 << 60)


def _flags(config: Any, table: Table, platform: str, *, failed: bool) -> dict[str, Any]:
    """The settings that move memory, without those that say nothing."""
    flags: dict[str, Any] = {}
    for name, path, usual in table.flags:
        value = _plain(at(config, path))
        if value is not None and value != usual:
            flags[name] = value
    asked, length = at(config, "model_config.original_max_model_len"), at(config, "model_config.max_model_len")
    flags["max_model_len"] = -1 if asked == -1 and failed else _whole(length)
    if at(config, "cache_config.user_specified_block_size") or platform == "cpu":
        flags["block_size"] = _whole(at(config, "cache_config.block_size"))
    if getattr(config, "lora_config", None) is not None:
        flags["enable_lora"] = True
    drafts = getattr(config, "speculative_config", None)
    if drafts is not None:
        said = {name: _plain(getattr(drafts, name, None)) for name in ("method", "model", "num_speculative_tokens")}
        flags["speculative_config"] = {name: value for name, value in said.items() if value is not None}
    limits = at(config, "model_config.multimodal_config.limit_per_prompt")
    if isinstance(limits, Mapping) and limits:
        flags["limit_mm_per_prompt"] = {
            str(kind): _whole(getattr(each, "count", each)) for kind, each in limits.items()
        }
    return {name: value for name, value in flags.items() if value is not None}


def _asked(config: Any, environ: Mapping[str, str]) -> str:
    chosen = at(config, "attention_config.backend")
    if chosen is not None:
        return f"{getattr(chosen, 'name', chosen)} by --attention-backend"
    variable = environ.get("VLLM_ATTENTION_BACKEND", "").strip()
    return f"{variable} by VLLM_ATTENTION_BACKEND" if variable else ""


def _platform(config: Any) -> str:
    kind = at(config, "device_config.device_type")
    return kind if isinstance(kind, str) else ""


def _pool(config: Any, found: Any) -> dict[str, Any]:
    if found is None:
        return {}
    blocks = found[0] if isinstance(found, tuple) and found else getattr(found, "num_blocks", None)
    pool = {
        "blocks": _whole(blocks),
        "tokens": _whole(at(config, "cache_config.kv_cache_size_tokens")),
        "max_concurrency": at(config, "cache_config.kv_cache_max_concurrency"),
        "max_model_len": _whole(at(config, "model_config.max_model_len")),
    }
    return {name: value for name, value in pool.items() if isinstance(value, int | float)}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else None
