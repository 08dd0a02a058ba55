"""Launches for the tests of backends: settings with sensible values, models from the catalogue."""

from __future__ import annotations

from functools import cache
from typing import Any

from kvroom.devices.catalogue import custom_device, find_device
from kvroom.devices.device import Device
from kvroom.models import catalogue
from kvroom.models.config import read_config
from kvroom.models.shape import ModelShape
from kvroom.units import GIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.backends import BackendChoice, choose_backend
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import rules_for
from kvroom.vllm.settings import Settings


def settings(release: str, **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "rules": rules_for(parse_release(release)),
        "engine": "V1",
        "max_model_len": 32768,
        "derived_max_model_len": 32768,
        "derived_from": "max_position_embeddings",
        "auto_max_model_len": False,
        "gpu_memory_utilization": 0.9,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "mamba_cache_mode": "none",
        "async_scheduling": True,
        "max_concurrent_batches": 2,
        "model_runner": "V1",
        "is_pooling": False,
        "speculative_tokens": 0,
        "uses_own_draft": False,
        "capture_sizes": (1, 2, 4, 8),
        "cudagraph_mode": "FULL_AND_PIECEWISE",
        "hybrid_manager": True,
    }
    return Settings(**values | changes)


@cache
def model(name: str) -> ModelShape:
    entry = catalogue.find(name)
    assert entry is not None, name
    return read_config(entry.config, name=name, hf_quant_config=entry.hf_quant_config)


@cache
def card(capability: str) -> Device:
    return custom_device(f"a card of {capability}", 80 * GIB, capability)


def choose(
    name: str,
    gpu: str,
    release: str,
    *,
    args: EngineArgs | None = None,
    without: frozenset[str] = frozenset(),
    **changes: Any,
) -> BackendChoice:
    """The backend for a catalogue model on a GPU given by name or by compute capability."""
    device = card(gpu) if gpu.replace(".", "").isdecimal() and "." in gpu else find_device(gpu)
    return choose_backend(model(name), args or EngineArgs(), settings(release, **changes), device, without=without)
