"""The KV calculator repeats what plans say: there is no second formula."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.errors import EngineError, UsageError
from kvroom.ledger.setup import Setup
from kvroom.plans.make import plan
from kvroom.sizing.kv import kv_table, pool_of
from kvroom.units import GIB

MODELS = {
    "meta-llama/Llama-3.1-8B-Instruct": {},
    "google/gemma-3-27b-it": {},
    "openai/gpt-oss-20b": {},
    "deepseek-ai/DeepSeek-V3.2": {"tensor_parallel_size": 8},
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {"tensor_parallel_size": 4},
    "deepseek-ai/DeepSeek-V4-Flash": {"tensor_parallel_size": 8},
    "Qwen/Qwen3-30B-A3B": {"pipeline_parallel_size": 2, "kv_cache_dtype": "fp8"},
}


def _setup(model: str, **flags: object) -> Setup:
    return plan(model, gpu="H200", offline=True, learned=False, **flags).prediction.setup


QWEN = _setup("Qwen/Qwen3-8B")
BLOCK = 16 * 147456


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("length", [2048, 20000])
def test_a_row_says_what_the_plan_of_that_length_says(model: str, length: int) -> None:
    flags = {**MODELS[model], "max_model_len": length}
    planned = plan(model, gpu="H200", offline=True, learned=False, **flags).prediction
    assert planned.pool is not None
    assert planned.ledger is not None
    pool, _ = pool_of(planned)
    assert pool == planned.ledger.available.expected
    row = kv_table(_setup(model, **MODELS[model]), (length,), pool).rows[0]
    assert row.needed_bytes == planned.pool.needed_bytes
    assert row.concurrency == planned.pool.max_concurrency
    assert row.sequences == math.floor(planned.pool.max_concurrency)


@pytest.mark.parametrize("model", MODELS)
def test_the_kinds_add_up_to_the_sequence(model: str) -> None:
    for row in kv_table(_setup(model, **MODELS[model])).rows:
        short = row.sequence_bytes - sum(kind.n_bytes for kind in row.kinds)
        assert abs(short) <= len(row.kinds) * 16


def test_known_sizes_of_a_token() -> None:
    # 32 layers x 2 x 8 KV heads x 128 x 2 B; the model's card and every log of it say 128 KiB
    plain = kv_table(_setup("meta-llama/Llama-3.1-8B-Instruct"), (4096,))
    assert (plain.token_bytes, plain.total_token_bytes, plain.copies) == (131072, 131072, 1.0)
    half = kv_table(_setup("meta-llama/Llama-3.1-8B-Instruct", tensor_parallel_size=2), (4096,))
    assert (half.token_bytes, half.total_token_bytes, half.copies) == (65536, 131072, 1.0)
    fp8 = kv_table(_setup("meta-llama/Llama-3.1-8B-Instruct", kv_cache_dtype="fp8"), (4096,))
    assert fp8.token_bytes == 65536


def test_heads_that_ranks_share_are_stored_more_than_once() -> None:
    table = kv_table(_setup("meta-llama/Llama-3.1-70B-Instruct", tensor_parallel_size=16), (4096,))
    assert table.copies == 2.0
    latent = kv_table(_setup("deepseek-ai/DeepSeek-V3.2", tensor_parallel_size=8), (4096,))
    assert latent.copies == 8.0


def test_pipeline_stages_add_up_to_the_model() -> None:
    table = kv_table(_setup("meta-llama/Llama-3.1-70B-Instruct", pipeline_parallel_size=3), (4096,))
    assert table.total_token_bytes == 80 * 4096
    assert table.token_bytes == 27 * 4096


@given(st.integers(2, 40960), st.integers(1, 64 * GIB))
@settings(deadline=None, max_examples=60)
def test_longer_sequences_take_no_less_and_fit_no_more(length: int, pool: int) -> None:
    shorter, longer = kv_table(QWEN, (length // 2, length), pool).rows
    assert shorter.sequence_bytes <= longer.sequence_bytes
    assert shorter.sequences is not None
    assert longer.sequences is not None
    assert shorter.sequences >= longer.sequences
    assert shorter.batch_bytes(shorter.sequences) <= pool < shorter.batch_bytes(shorter.sequences + 1) + BLOCK


def test_a_length_beyond_the_model_names_its_limit() -> None:
    with pytest.raises(UsageError, match="40,960"):
        kv_table(_setup("Qwen/Qwen3-8B"), (50_000,))


def test_a_launch_that_vllm_refuses_is_an_error_with_its_text() -> None:
    with pytest.raises(EngineError, match="refuses"):
        kv_table(_setup("Qwen/Qwen3-8B", tensor_parallel_size=3), (4096,))


def test_no_pool_where_the_weights_fill_the_card() -> None:
    with pytest.raises(UsageError, match="no KV pool"):
        pool_of(plan("Qwen/Qwen3-32B", gpu="RTX 3060", offline=True, learned=False).prediction)
