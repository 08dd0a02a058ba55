"""The KV cache as vLLM's own planner lays it out, and the settings it resolved."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from . import modalities, moved


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
        "encoder": modalities.encoder(model),
        "remote_code": any(name.startswith("transformers_modules.") for name in sys.modules),
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
    layers = moved.need("get_layers_from_vllm_config")(config, moved.need("AttentionLayerBase")).values()
    return dict(Counter(layer.get_attn_backend().get_name() for layer in layers))


def _resolve_layout(config: Any, specs: dict[str, Any]) -> None:
    """VLLM settles on one layout of the KV cache before it plans, since 0.32."""
    resolve = moved.maybe("resolve_kv_cache_layout")
    if resolve is None or not specs:
        return
    of_backends = moved.maybe("get_current_attn_backends")
    asked = of_backends(config) if of_backends else config
    supported = moved.need("get_supported_kv_cache_layouts")(asked)
    resolve(config, [[getattr(name, "name", name) for name in supported]], list(specs.values()))


def _laid_out(config: Any, specs: dict[str, Any], available: int) -> Any:
    """The plan, as the engine's core of this release asks for it."""
    group = moved.maybe("get_global_kv_cache_groups")
    plan = moved.maybe("get_kv_cache_configs")
    if group is not None:  # grouped before the available memory is known, since 0.33
        return plan(config, [specs], [available], group(config, [specs]))[0]
    if plan is not None:
        return plan(config, [specs], [available])[0]
    return moved.need("get_kv_cache_config")(config, specs, available)  # before 0.11


def _pool(config: Any, specs: dict[str, Any], available: int) -> dict[str, Any]:
    """The pool of ``available`` bytes; planning may shorten the length, which the next one must not see."""
    asked = config.model_config.max_model_len
    found: dict[str, Any] = {"available": available}
    try:
        plan = _laid_out(config, specs, available)
        found |= {"max_model_len": config.model_config.max_model_len, **_described(config, plan)}
    except ValueError as error:
        found |= {"max_model_len": config.model_config.max_model_len, "error": str(error)}
    finally:
        config.model_config.max_model_len = asked
    return found


def _described(config: Any, plan: Any) -> dict[str, Any]:
    groups = plan.kv_cache_groups
    found: dict[str, Any] = {
        "num_blocks": plan.num_blocks,
        "groups": [
            {
                "layers": len(group.layer_names),
                "kind": type(group.kv_cache_spec).__name__,
                "block_size": group.kv_cache_spec.block_size,
                "page_bytes": group.kv_cache_spec.page_size_bytes,
            }
            for group in groups
        ],
        "bytes": sum(tensor.size for tensor in plan.kv_cache_tensors),
    }
    if not groups:
        return found
    capacity = moved.maybe("get_kv_cache_capacity")
    if capacity is not None:
        whole = moved.need("generate_scheduler_kv_cache_config")([plan])
        found["tokens"], found["max_concurrency"] = capacity(config, whole)
    else:
        found["max_concurrency"] = moved.need("get_max_concurrency_for_kv_cache_config")(config, plan)
        smallest = min(group.kv_cache_spec.block_size for group in groups)
        found["tokens"] = plan.num_blocks // len(groups) * smallest
    return found
