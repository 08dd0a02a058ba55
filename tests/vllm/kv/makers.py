"""Small launches for tests of the KV planner, one argument away from plain."""

from __future__ import annotations

from collections.abc import Iterable

from kvroom.models.shape import Cache, CacheLayer, ModelShape
from kvroom.vllm.kv.groups import Layer
from kvroom.vllm.kv.pages import Spec, SpecKind
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import Rules, rules_for
from kvroom.vllm.settings import Settings

RELEASES = ("0.8.5", "0.10.2", "0.13.0", "0.16.0", "0.19.1", "0.20.2", "0.24.0", "0.27.1", "0.29.0", "0.33.0")


def rules(release: str) -> Rules:
    return rules_for(parse_release(release))


def settings(release: str = "0.32.0", **changes: object) -> Settings:
    plain = {
        "rules": rules(release),
        "engine": "V1",
        "max_model_len": 4096,
        "derived_max_model_len": 131072,
        "derived_from": "max_position_embeddings",
        "auto_max_model_len": False,
        "gpu_memory_utilization": 0.9,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "mamba_cache_mode": "none",
        "async_scheduling": False,
        "max_concurrent_batches": 1,
        "model_runner": "V1",
        "is_pooling": False,
        "speculative_tokens": 0,
        "uses_own_draft": False,
        "capture_sizes": (),
        "cudagraph_mode": "NONE",
        "hybrid_manager": True,
    }
    return Settings(**{**plain, **changes})


def shape(caches: Iterable[Cache], architecture: str = "LlamaForCausalLM", **changes: object) -> ModelShape:
    layers = tuple(CacheLayer(index, cache) for index, cache in enumerate(caches))
    plain = {
        "name": "made",
        "architecture": architecture,
        "model_type": "llama",
        "dtype": "bfloat16",
        "layers": len(layers),
        "hidden_size": 4096,
        "vocab_size": 32000,
        "heads": 32,
        "kv_heads": 8,
        "head_size": 128,
        "intermediate_size": 11008,
        "caches": layers,
    }
    return ModelShape(**{**plain, **changes})


def full(block: int = 16, unit: int = 4096, **changes: object) -> Spec:
    return Spec(SpecKind.FULL, block, unit, **changes)


def sliding(window: int = 1024, block: int = 16, unit: int = 4096, **changes: object) -> Spec:
    return Spec(SpecKind.SLIDING, block, unit, window=window, **changes)


def layers(*specs: Spec) -> tuple[Layer, ...]:
    return tuple(Layer(index, spec) for index, spec in enumerate(specs))
