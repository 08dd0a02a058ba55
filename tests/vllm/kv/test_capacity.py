from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vllm.kv.makers import RELEASES, settings, shape
from tests.vllm.kv.test_layout import GEMMA, HYBRID, LLAMA

from kvroom.units import GIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.kv.capacity import capacity, capacity_of_stages
from kvroom.vllm.kv.layout import KvLayout, layout_of

BLOCK = 32 * 16 * 4096


def planned(model=LLAMA, release: str = "0.32.0", args: dict | None = None, **changes):
    chosen = settings(release, **changes)
    return layout_of(model, EngineArgs(**(args or {})), chosen, "FLASH_ATTN", None), chosen


@given(st.integers(0, 1 << 36), st.integers(0, 1 << 30), st.sampled_from(RELEASES))
def test_more_bytes_never_buy_less(available: int, more: int, release: str) -> None:
    layout, chosen = planned(GEMMA, release)
    poorer, richer = capacity(layout, available, chosen), capacity(layout, available + more, chosen)
    assert poorer.num_blocks <= richer.num_blocks
    assert poorer.longest_context <= richer.longest_context
    assert richer.fits or not poorer.fits


@given(st.integers(1, 1 << 36), st.sampled_from(RELEASES))
def test_the_longest_context_starts_and_one_token_more_does_not(available: int, release: str) -> None:
    layout, chosen = planned(LLAMA, release)
    longest = capacity(layout, available, chosen).longest_context
    if longest:
        assert capacity(layout, available, replace(chosen, max_model_len=longest)).fits
    if longest < chosen.derived_max_model_len:
        longer = replace(chosen, max_model_len=max(longest + 1, 1))
        assert not capacity(layout, available, longer).fits


def test_nothing_left() -> None:
    pool = capacity(*_with(0))
    assert pool.error is not None
    assert pool.error.startswith("No available memory for the cache blocks.")
    assert (pool.num_blocks, pool.longest_context) == (0, 0)


def _with(available: int):
    layout, chosen = planned()
    return layout, available, chosen


def test_auto_fit_without_room_for_a_token() -> None:
    layout, chosen = planned(auto_max_model_len=True)
    pool = capacity(layout, BLOCK, chosen)
    assert pool.error is not None
    assert pool.error.startswith("Cannot auto-fit max_model_len")


def test_the_poorest_stage_decides() -> None:
    args = EngineArgs(pipeline_parallel_size=2)
    chosen = settings()
    layouts = [layout_of(LLAMA, args, chosen, "FLASH_ATTN", None, stage=stage) for stage in (0, 1)]
    pool = capacity_of_stages(layouts, (10 * GIB, 4 * GIB), chosen)
    assert pool.num_blocks == 4 * GIB // layouts[1].bytes_per_block
    assert pool.available_bytes == 4 * GIB
    first = capacity_of_stages(layouts, (GIB // 100, 4 * GIB), chosen)
    assert first.error is not None
    assert "(0.01 GiB)" in first.error


def test_an_override_is_logged() -> None:
    layout, chosen = planned()
    pool = capacity(layout, GIB, chosen, override=4000)
    assert pool.num_blocks == 4000
    assert f"Overriding num_gpu_blocks={GIB // BLOCK} with num_gpu_blocks_override=4000" in pool.notes


def mamba(release: str, available: int, **changes):
    layout, chosen = planned(HYBRID, release, cudagraph_mode="FULL_AND_PIECEWISE", **changes)
    return layout, capacity(layout, available, chosen)


def blocks(layout: KvLayout, count: int) -> int:
    return (count + layout.rules["kv_reserves_null_block"]) * layout.bytes_per_block


def test_too_few_states_for_the_sequences() -> None:
    layout, _ = mamba("0.20.2", 0)
    _, pool = mamba("0.20.2", blocks(layout, 100))
    assert pool.error is not None
    assert "256" in pool.error
    assert "100" in pool.error
    assert mamba("0.20.2", blocks(layout, 300))[1].fits
    assert mamba("0.20.2", blocks(layout, 100), max_num_seqs=64)[1].fits


def test_few_states_once_only_capped_the_graphs() -> None:
    layout, _ = mamba("0.18.1", 0)
    _, pool = mamba("0.18.1", blocks(layout, 100), capture_sizes=(1, 2, 4, 64, 128, 256))
    assert pool.fits
    assert "64" in pool.notes[-1]


def test_a_model_without_a_cache_starts_with_anything() -> None:
    layout, chosen = planned(shape([], layers=12), release="0.32.0")
    pool = capacity(layout, -5, chosen)
    assert (pool.fits, pool.num_blocks, pool.tokens) == (True, 1, 0)


@pytest.mark.parametrize(
    ("available", "fits", "tokens"), [(256 * BLOCK, True, 4096), (255 * BLOCK, False, 4080), (0, False, 0)]
)
def test_v0_compares_tokens(available: int, fits: bool, tokens: int) -> None:
    layout, chosen = planned(LLAMA, "0.7.3", engine="V0")
    pool = capacity(layout, available, chosen)
    assert (pool.fits, pool.tokens) == (fits, tokens)
    assert pool.notes[0] == f"# cuda blocks: {available // BLOCK}, # CPU blocks: {layout.cpu_blocks}"
    if not fits and tokens:
        assert pool.error == (
            "The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV "
            "cache (4080). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing "
            "the engine."
        )
