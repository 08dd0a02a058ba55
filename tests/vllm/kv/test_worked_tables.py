"""Pools of known models across releases, as vLLM's planner functions of each release computed them.

40 GiB for the cache unless said, bf16, one GPU, 8,192 batched tokens; obtained by running the planner
modules of the named releases on a CPU with hand-built specs.
"""

from __future__ import annotations

import pytest

from kvroom.devices.device import Device, Machine
from kvroom.models.catalogue import find
from kvroom.models.config import read_config
from kvroom.units import GIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.defaults import resolve
from kvroom.vllm.kv.capacity import Pool, capacity
from kvroom.vllm.kv.layout import layout_of
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import rules_for

H100 = Device("NVIDIA H100 80GB HBM3", "NVIDIA", (9, 0), 80 * GIB, 80 * GIB, 80 * GIB, "measured")


def pool_of(model: str, release: str, backend: str, available: float, block: int | None, **arguments: object) -> Pool:
    entry = find(model)
    assert entry is not None
    shape = read_config(entry.config, name=model)
    args = EngineArgs(model="m", enforce_eager=True, distributed_executor_backend="mp", **arguments)
    rules = rules_for(parse_release(release))
    settings = resolve(args, shape, Machine(H100, 8), rules)
    layout = layout_of(shape, args, settings, backend, block, capability=(9, 0))
    return capacity(layout, int(available * GIB), settings, args.num_gpu_blocks_override)


UNIFORM = [
    ("meta-llama/Llama-3.1-8B", "FLASH_ATTN", None, {}, 20480, 327_680, 2.50),
    ("meta-llama/Llama-3.1-8B", "FLASH_ATTN", None, {"kv_cache_dtype": "fp8"}, 40960, 655_360, 5.00),
    ("Qwen/Qwen2.5-7B-Instruct", "FLASH_ATTN", None, {}, 46811, 748_976, 22.86),
    ("Qwen/Qwen3-30B-A3B", "FLASH_ATTN", None, {}, 27306, 436_896, 10.67),
]


@pytest.mark.parametrize(
    "release", ["0.9.2", "0.10.2", "0.11.2", "0.13.0", "0.16.0", "0.19.1", "0.24.0", "0.28.0", "0.33.0"]
)
@pytest.mark.parametrize("case", UNIFORM, ids=lambda case: f"{case[0]}{case[3]}")
def test_uniform_models_are_the_same_in_every_release(case, release: str) -> None:
    model, backend, block, arguments, blocks, tokens, concurrency = case
    pool = pool_of(model, release, backend, 40, block, **arguments)
    assert (pool.num_blocks, round(pool.max_concurrency, 2)) == (blocks, concurrency)
    assert abs(pool.tokens - tokens) <= 1


GEMMA = ("google/gemma-3-27b-it", "TRITON_ATTN", {"max_model_len": 131072})
GPT_OSS = ("openai/gpt-oss-20b", "FLASH_ATTN", {})
SCOUT = ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "FLASH_ATTN", {"max_model_len": 131072})
MISTRAL = ("mistralai/Mistral-7B-v0.1", "FLASH_ATTN", {"max_model_len": 32768})
WINDOWED = [
    *((*GEMMA, release, 32768, 74_896, 2.81) for release in ("0.10.2", "0.13.0", "0.16.0", "0.19.1")),
    *((*GEMMA, release, 32768, 368_540, 2.81) for release in ("0.20.2", "0.24.0")),
    *((*GEMMA, release, 32768, 291_658, 2.23) for release in ("0.26.0", "0.28.0", "0.33.0")),
    *((*GPT_OSS, release, 109_226, 873_808, 12.54) for release in ("0.11.2", "0.16.0", "0.19.1")),
    *((*GPT_OSS, release, 109_226, 1_643_116, 12.54) for release in ("0.20.2", "0.24.0")),
    *((*GPT_OSS, release, 109_226, 1_551_920, 11.84) for release in ("0.26.0", "0.33.0")),
    *((*SCOUT, release, 54613, 218_448, 4.85) for release in ("0.16.0", "0.19.1")),
    *((*SCOUT, release, 54613, 635_496, 4.85) for release in ("0.20.2", "0.24.0")),
    *((*SCOUT, release, 54613, 559_237, 4.27) for release in ("0.26.0", "0.33.0")),
    *((*MISTRAL, release, 20480, 327_680, 26.63) for release in ("0.13.0", "0.19.1")),
    *((*MISTRAL, release, 20480, 872_677, 26.63) for release in ("0.20.2", "0.24.0")),
    *((*MISTRAL, release, 20480, 523_878, 15.99) for release in ("0.26.0", "0.33.0")),
]


@pytest.mark.parametrize("case", WINDOWED, ids=lambda case: f"{case[0]}-{case[3]}")
def test_windowed_models_change_with_the_release(case) -> None:
    model, backend, arguments, release, blocks, tokens, concurrency = case
    pool = pool_of(model, release, backend, 40, None, max_num_batched_tokens=8192, **arguments)
    assert (pool.num_blocks, pool.tokens, round(pool.max_concurrency, 2)) == (blocks, tokens, concurrency)


@pytest.mark.parametrize(
    ("release", "gib", "fits", "estimate"),
    [
        ("0.13.0", 16, True, 131072),
        ("0.28.0", 16, True, 131072),
        ("0.29.0", 16, False, 131056),
        ("0.28.0", 15.9, False, 130240),
        ("0.29.0", 15.9, False, 130224),
    ],
)
def test_a_pool_of_exactly_one_request(release: str, gib: float, fits: bool, estimate: int) -> None:
    pool = pool_of("meta-llama/Llama-3.1-8B", release, "FLASH_ATTN", gib, None)
    assert (pool.fits, pool.estimated_length) == (fits, estimate)


@pytest.mark.parametrize(
    ("release", "fits"), [("0.13.0", True), ("0.19.1", True), ("0.20.2", False), ("0.33.0", False)]
)
def test_an_override_counts_for_the_check_since_0_20(release: str, fits: bool) -> None:
    pool = pool_of("meta-llama/Llama-3.1-8B", release, "FLASH_ATTN", 40, None, num_gpu_blocks_override=1000)
    assert (pool.num_blocks, pool.fits) == (1000, fits)


@pytest.mark.parametrize(("release", "length"), [("0.14.1", 81920), ("0.28.0", 81920), ("0.29.0", 81904)])
def test_auto_fit(release: str, length: int) -> None:
    pool = pool_of("meta-llama/Llama-3.1-8B", release, "FLASH_ATTN", 10, None, max_model_len=-1)
    assert pool.max_model_len == length
    assert any(f"reduced from 131072 to {length}" in line for line in pool.notes)


@pytest.mark.parametrize(
    ("release", "fits", "estimate"),
    [
        ("0.10.2", False, 824_656),
        ("0.13.0", False, 824_656),
        ("0.16.0", True, 1 << 20),
        ("0.19.1", False, 824_656),
        ("0.28.0", False, 800_080),
        ("0.30.0", False, 800_064),
    ],
)
def test_llama_4_at_a_million_tokens(release: str, fits: bool, estimate: int) -> None:
    """0.14 to 0.18 count the first group only, and start with less than one request of room."""
    environment = {"VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": "1"}
    model, backend, _ = SCOUT
    pool = pool_of(
        model, release, backend, 40, None, max_model_len=1 << 20, max_num_batched_tokens=8192, env=environment
    )
    assert (pool.fits, pool.estimated_length) == (fits, estimate)


HYBRIDS = [
    # model, release, prefix caching, blocks, tokens, concurrency
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", "0.28.0", False, 3212, 1_736_095, 6.62),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", "0.28.0", True, 3212, None, 6.58),
    ("ai21labs/Jamba-v0.1", "0.28.0", False, 32768, 2_615_692, 9.98),
]


@pytest.mark.parametrize("case", HYBRIDS, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def test_hybrids_with_recurrent_states(case) -> None:
    model, release, prefix, blocks, tokens, concurrency = case
    arguments = {
        "max_model_len": 262144,
        "enable_prefix_caching": prefix,
        "env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"},
    }
    pool = pool_of(model, release, "FLASH_ATTN", 40, None, **arguments)
    assert (pool.num_blocks, round(pool.max_concurrency, 2)) == (blocks, concurrency)
    if tokens is not None:
        assert pool.tokens == tokens
