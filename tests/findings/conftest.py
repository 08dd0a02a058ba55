"""Predictions built by hand, so that a finding's test depends on the finding alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kvroom.devices.device import Device, Machine
from kvroom.ledger.entries import Basis, close, exact
from kvroom.ledger.predict import Prediction, Setup
from kvroom.ledger.verdict import Status, Verdict
from kvroom.models.shape import AttentionCache, AttentionKind, CacheLayer, ModelShape
from kvroom.units import GIB
from kvroom.vllm.backends import BackendChoice
from kvroom.vllm.kv.capacity import Pool
from kvroom.vllm.kv.groups import Group, Layer
from kvroom.vllm.kv.layout import KvLayout
from kvroom.vllm.kv.pages import Spec, SpecKind
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import rules_for
from kvroom.vllm.settings import Settings

CARD = Device("NVIDIA GeForce RTX 4090", "NVIDIA", (8, 9), 24 * GIB, 24 * GIB, 24 * GIB, "published")
FULL_LAYER = AttentionCache(AttentionKind.FULL, kv_heads=8, head_size=128, head_size_v=128)
DENSE = ModelShape(
    name="org/dense-8b",
    architecture="LlamaForCausalLM",
    model_type="llama",
    dtype="bfloat16",
    layers=32,
    hidden_size=4096,
    vocab_size=128256,
    heads=32,
    kv_heads=8,
    head_size=128,
    intermediate_size=14336,
    caches=tuple(CacheLayer(n, FULL_LAYER) for n in range(2)),
    position_limits=(("max_position_embeddings", 32768),),
)
PAGE = 65536


def build(
    command: str = "",
    *,
    release: str = "0.28.0",
    env: Mapping[str, str] | None = None,
    shape: Mapping[str, Any] | None = None,
    device: Mapping[str, Any] | None = None,
    count: int = 1,
    free_gib: float | None = None,
    settings: Mapping[str, Any] | None = None,
    refused: str | None = None,
    backend: Mapping[str, Any] | None = None,
    gib: Mapping[str, float] | None = None,
    activation_cause: str = "sampler",
    pool: Mapping[str, Any] | None = None,
    states: int = 0,
    status: Status = Status.FITS,
) -> Prediction:
    """A prediction of ``vllm serve org/dense-8b COMMAND`` whose parts are set by hand.

    ``refused`` is the message of a launch that stops at its configuration; ``states`` the number of
    groups with recurrent state; ``gib`` the ledger's entries.
    """
    version = parse_release(release)
    rules = rules_for(version)
    args = parse_serve_args(["org/dense-8b", *shlex.split(command)], env or {}, release=version)
    card = replace(CARD, **(device or {}))
    machine = Machine(card, count, None if free_gib is None else int(free_gib * GIB))
    setup = Setup(replace(DENSE, **(shape or {})), args, machine, version)
    if refused is not None:
        return Prediction(setup, rules, Verdict(Status.FAILS, "config", refused))
    resolved = _settings(args, rules, settings or {})
    numbers = {
        "requested": 24 * resolved.gpu_memory_utilization,
        "weights": 15,
        "activation": 1,
        "other": 0.1,
        "cuda_graphs": 0,
    }
    numbers |= gib or {}
    parts = {
        name: replace(
            exact(name, int(value * GIB), Basis.COMPUTED, name), cause=activation_cause if name == "activation" else ""
        )
        for name, value in numbers.items()
    }
    ledger = close(*parts.values())
    if args.kv_cache_memory_bytes is not None:
        fixed = exact("available", args.kv_cache_memory_bytes, Basis.COMPUTED, "fixed")
        ledger = replace(ledger, available=fixed)
    full = Group(Spec(SpecKind.FULL, 16, PAGE // 16), (Layer(0, Spec(SpecKind.FULL, 16, PAGE // 16)),))
    state = Group(Spec(SpecKind.MAMBA, 16, PAGE, fixed_blocks=2), (Layer(1, Spec(SpecKind.MAMBA, 16, PAGE)),))
    layout = KvLayout(rules, (full, *(state for _ in range(states))), 16, PAGE, (), ())
    chosen = replace(BackendChoice("FLASH_ATTN", "the default here"), **(backend or {}))
    return Prediction(
        setup,
        rules,
        Verdict(status),
        resolved,
        chosen,
        ledger,
        layout,
        _pool(resolved, ledger.available.expected, pool or {}),
    )


def _settings(args: Any, rules: Any, changes: Mapping[str, Any]) -> Settings:
    resolved = Settings(
        rules=rules,
        engine="V1",
        max_model_len=args.max_model_len or 32768,
        derived_max_model_len=32768,
        derived_from="max_position_embeddings",
        auto_max_model_len=False,
        gpu_memory_utilization=args.gpu_memory_utilization or 0.9,
        max_num_seqs=args.max_num_seqs or 256,
        max_num_batched_tokens=args.max_num_batched_tokens or 2048,
        dtype="bfloat16",
        kv_cache_dtype=args.kv_cache_dtype or "auto",
        enable_prefix_caching=True,
        enable_chunked_prefill=args.enable_chunked_prefill is not False,
        mamba_cache_mode="none",
        async_scheduling=True,
        max_concurrent_batches=2,
        model_runner="V1",
        is_pooling=False,
        speculative_tokens=0,
        uses_own_draft=False,
        capture_sizes=() if args.enforce_eager else (1, 2, 4, 8),
        cudagraph_mode="NONE" if args.enforce_eager else "FULL_AND_PIECEWISE",
        hybrid_manager=not args.disable_hybrid_kv_cache_manager,
    )
    return replace(resolved, **changes)


def _pool(settings: Settings, available: int, changes: Mapping[str, Any]) -> Pool:
    pool = Pool(
        available_bytes=available,
        bytes_per_block=PAGE,
        block_size=16,
        num_blocks=16384,
        tokens=262144,
        max_concurrency=8.0,
        max_model_len=settings.max_model_len,
        needed_bytes=2 * GIB,
        longest_context=32768,
        estimated_length=settings.max_model_len,
    )
    return replace(pool, **changes)


@pytest.fixture
def launch() -> Callable[..., Prediction]:
    """A function that builds a prediction by hand."""
    return build
