"""What vLLM's releases keep in different places, and the one function that looks there."""

from __future__ import annotations

import importlib
from typing import Any

HOMES: dict[str, tuple[str, ...]] = {
    "direct_register_custom_op": ("vllm.utils.torch_utils", "vllm.utils"),
    "FlexibleArgumentParser": ("vllm.utils.argparse_utils", "vllm.utils"),
    "get_layers_from_vllm_config": ("vllm.config.vllm", "vllm.config"),
    "AttentionLayerBase": (
        "vllm.model_executor.layers.attention_layer_base",
        "vllm.attention.layer:Attention",
    ),
    "resolve_kv_cache_layout": ("vllm.v1.attention.backends.utils",),
    "get_supported_kv_cache_layouts": ("vllm.v1.attention.backends.utils",),
    "get_current_attn_backends": ("vllm.v1.worker.worker_base",),
    "get_global_kv_cache_groups": ("vllm.v1.core.kv_cache_planning",),
    "get_kv_cache_configs": ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils"),
    "get_kv_cache_config": ("vllm.v1.core.kv_cache_utils",),
    "get_kv_cache_capacity": ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils"),
    "generate_scheduler_kv_cache_config": ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils"),
    "get_max_concurrency_for_kv_cache_config": ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils"),
    "MemoryProfilingResult": ("vllm.utils.mem_utils", "vllm.utils"),
}
"""Modules by the name that is asked of them, newest first; ``module:name`` where the name differed too."""


def home(name: str) -> Any:
    """The module of ``name`` in this release and the name there; RuntimeError where none has it."""
    for place in HOMES[name]:
        path, _, other = place.partition(":")
        try:
            found = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if not path.startswith(error.name or "-"):
                raise  # the module is there; something that it needs is not
            continue
        if hasattr(found, other or name):
            return found, other or name
    raise RuntimeError(f"this release of vLLM has no {name} in {', '.join(HOMES[name])}")


def maybe(name: str) -> Any:
    """``name`` where this release has it, else None: releases before it was made, or after it was dropped."""
    try:
        found, key = home(name)
    except RuntimeError:
        return None
    return getattr(found, key)


def need(name: str) -> Any:
    """``name`` in this release; RuntimeError says where it was looked for."""
    found, key = home(name)
    return getattr(found, key)
