"""The KV cache as vLLM's own planner lays it out, and the settings it resolved."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any


def settings_of(config: Any) -> dict[str, Any]:
    """What vLLM resolved, under the names of its arguments."""
    model, scheduler, cache, parallel = (
        config.model_config,
        config.scheduler_config,
        config.cache_config,
        config.parallel_config,
    )
    chunked = getattr(scheduler, "enable_chunked_prefill", getattr(scheduler, "chunked_prefill_enabled", None))
    return {
        "architecture": getattr(model, "architecture", None),
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_model_len": model.max_model_len,
        "quantization": model.quantization,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "enable_chunked_prefill": chunked,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "kv_cache_dtype": cache.cache_dtype,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "block_size": cache.block_size,
        "use_mla": model.use_mla,
        "v2_runner": bool(getattr(config, "use_v2_model_runner", False)),
    }


def planned(config: Any, specs: dict[str, Any], available: list[int]) -> dict[str, Any]:
    """Backends, groups, and for each of ``available`` bytes the pool or the error that vLLM raises."""
    from vllm.config import set_current_vllm_config

    with set_current_vllm_config(config):
        _resolve_layout(config, specs)
        return {
            "backends": _backends(config),
            "block_size": config.cache_config.block_size,
            "pools": [_pool(config, specs, size) for size in available],
        }


def _backends(config: Any) -> dict[str, int]:
    try:
        from vllm.config.vllm import get_layers_from_vllm_config
    except ImportError:
        from vllm.config import get_layers_from_vllm_config
    try:
        from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    except ImportError:
        from vllm.attention.layer import Attention as AttentionLayerBase
    layers = get_layers_from_vllm_config(config, AttentionLayerBase).values()
    return dict(Counter(layer.get_attn_backend().get_name() for layer in layers))


def _resolve_layout(config: Any, specs: dict[str, Any]) -> None:
    """VLLM settles on one layout of the KV cache before it plans, since 0.32."""
    from vllm.v1.attention.backends import utils

    resolve = getattr(utils, "resolve_kv_cache_layout", None)
    if resolve is None or not specs:
        return
    try:
        from vllm.v1.worker.worker_base import get_current_attn_backends

        asked = get_current_attn_backends(config)
    except ImportError:
        asked = config
    names = [getattr(name, "name", name) for name in utils.get_supported_kv_cache_layouts(asked)]
    resolve(config, [names], list(specs.values()))


class _Planner:
    """The planner's functions, in whichever of its modules the release has them."""

    def __getattr__(self, name: str) -> Any:
        for home in ("kv_cache_utils", "kv_cache_planning", "kv_cache_config_builder"):
            try:
                found = getattr(importlib.import_module(f"vllm.v1.core.{home}"), name, None)
            except ImportError:
                continue
            if found is not None:
                return found
        raise AttributeError(name)


def _pool(config: Any, specs: dict[str, Any], available: int) -> dict[str, Any]:
    utils = _Planner()
    asked = config.model_config.max_model_len
    found: dict[str, Any] = {"available": available}
    try:
        plan = utils.get_kv_cache_configs(config, [specs], [available])[0]
    except ValueError as error:
        found["error"] = str(error)
        return found
    finally:
        found["max_model_len"] = config.model_config.max_model_len
        config.model_config.max_model_len = asked
    groups = plan.kv_cache_groups
    found["num_blocks"] = plan.num_blocks
    found["groups"] = [
        {
            "layers": len(group.layer_names),
            "kind": type(group.kv_cache_spec).__name__,
            "block_size": group.kv_cache_spec.block_size,
            "page_bytes": group.kv_cache_spec.page_size_bytes,
        }
        for group in groups
    ]
    found["bytes"] = sum(tensor.size for tensor in plan.kv_cache_tensors)
    if not groups:
        return found
    if hasattr(utils, "get_kv_cache_capacity"):
        found["tokens"], found["max_concurrency"] = utils.get_kv_cache_capacity(
            config, utils.generate_scheduler_kv_cache_config([plan])
        )
    else:
        found["max_concurrency"] = utils.get_max_concurrency_for_kv_cache_config(config, plan)
        smallest = min(group.kv_cache_spec.block_size for group in groups)
        found["tokens"] = plan.num_blocks // len(groups) * smallest
    return found
