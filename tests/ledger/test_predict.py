"""Whole predictions, held against what real machines logged and against properties that always hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvroom
from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status
from kvroom.units import GIB

RELEASES = (
    "0.6.6",
    "0.8.5",
    "0.9.2",
    "0.10.2",
    "0.11.2",
    "0.13.0",
    "0.16.0",
    "0.19.1",
    "0.24.0",
    "0.28.0",
    "0.32.0",
)


def prediction(model: str, gpu: str, **options: object) -> Prediction:
    return kvroom.plan(model, gpu=gpu, offline=True, **options).prediction


def gib(prediction: Prediction, entry: str) -> float:
    assert prediction.ledger is not None
    return prediction.ledger.entry(entry).expected / GIB


def test_gpt_oss_120b_on_one_h100_as_logged_on_0_11() -> None:
    """Logged: weights 65.97 (Marlin), activation 7.38, available 1.71 GiB at utilisation 0.95 (vllm#26480 class)."""
    seen = prediction("openai/gpt-oss-120b", "H100", vllm="0.11.0", gpu_memory_utilization=0.95)
    assert gib(seen, "weights") == pytest.approx(65.97, abs=0.05)
    assert gib(seen, "activation") == pytest.approx(7.38, abs=0.05)
    assert gib(seen, "available") == pytest.approx(1.71, abs=0.1)


@pytest.mark.parametrize(
    ("model", "gpu", "flags", "weights", "activation", "available"),
    [
        # Public launches: model, card, flags, and the GiB that vLLM logged.
        (
            "meta-llama/Llama-2-7b-hf",
            "H100 NVL",
            {"vllm": "0.10.1", "max_num_seqs": 128, "max_num_batched_tokens": 2048},
            12.55,
            0.22,
            70.94,
        ),
        (
            "meta-llama/Llama-2-13b-hf",
            "L40S",
            {"vllm": "0.10.1", "max_num_seqs": 128, "max_num_batched_tokens": 2048},
            24.28,
            0.24,
            15.41,
        ),
        ("Qwen/Qwen3-32B", "H100", {"vllm": "0.11.0"}, 61.03, 5.64, 4.45),
        (
            "meta-llama/Llama-3.1-8B-Instruct",
            "RTX 3090",
            {"vllm": "0.12.0", "max_model_len": 32768},
            14.99,
            None,
            None,
        ),
    ],
)
def test_entries_as_public_launches_logged_them(model, gpu, flags, weights, activation, available) -> None:
    seen = prediction(model, gpu, **flags)
    assert gib(seen, "weights") == pytest.approx(weights, abs=0.05)
    if activation is not None:
        assert gib(seen, "activation") == pytest.approx(activation, abs=0.05)
        assert gib(seen, "available") == pytest.approx(available, abs=0.15)


@settings(max_examples=40, deadline=None)
@given(
    release=st.sampled_from(RELEASES),
    model=st.sampled_from(
        ("Qwen/Qwen3-8B", "google/gemma-3-27b-it", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite")
    ),
    gpu=st.sampled_from(("RTX 4090", "A100-80GB", "H100", "L40S")),
    shorter=st.integers(64, 8192),
    longer=st.integers(0, 8192),
    util=st.floats(0.3, 0.98),
)
def test_a_longer_context_never_needs_less_and_parts_sum(release, model, gpu, shorter, longer, util) -> None:
    one = prediction(model, gpu, vllm=release, max_model_len=shorter, gpu_memory_utilization=util)
    two = prediction(model, gpu, vllm=release, max_model_len=shorter + longer, gpu_memory_utilization=util)
    for seen in (one, two):
        if seen.ledger is None:
            continue
        parts = list(seen.ledger)
        assert parts[0].expected - sum(part.expected for part in parts[1:-1]) == parts[-1].expected
        assert all(part.low <= part.expected <= part.high for part in parts)
    if one.pool and two.pool:
        assert one.pool.needed_bytes <= two.pool.needed_bytes
        order = [Status.FITS, Status.TIGHT, Status.FAILS]
        assert order.index(one.verdict.status) <= order.index(two.verdict.status)


@pytest.mark.parametrize("release", RELEASES)
def test_more_utilisation_never_leaves_less(release: str) -> None:
    rooms = [
        gib(prediction("Qwen/Qwen3-8B", "A100-80GB", vllm=release, gpu_memory_utilization=util), "available")
        for util in (0.5, 0.7, 0.9)
    ]
    assert rooms == sorted(rooms)


def test_a_tensor_parallel_size_that_divides_never_raises_the_weights() -> None:
    weights = [
        gib(prediction("Qwen/Qwen3-32B", f"{size}x H100", tensor_parallel_size=size), "weights")
        for size in (1, 2, 4, 8)
    ]
    assert weights == sorted(weights, reverse=True)
    assert weights[3] < weights[0] / 7


def test_kv_cache_memory_bytes_replaces_the_profile() -> None:
    seen = prediction("Qwen/Qwen3-8B", "A100-80GB", vllm="0.28.0", kv_cache_memory_bytes="10G", max_model_len=8192)
    assert seen.ledger is not None
    assert {seen.ledger.available.low, seen.ledger.available.high} == {10 * GIB}


def test_fixed_kv_bytes_beyond_the_card_run_out_of_memory() -> None:
    seen = prediction("Qwen/Qwen3-8B", "RTX 4090", kv_cache_memory_bytes="12G", max_model_len=8192)
    assert (seen.verdict.status, seen.verdict.stage) == (Status.FAILS, "kv_alloc")


def test_too_little_free_memory_is_refused_at_the_check_in_vllms_words() -> None:
    seen = prediction("Qwen/Qwen3-0.6B", "RTX 4090", vllm="0.28.0", free_memory="12GiB", max_model_len=4096)
    assert (seen.verdict.status, seen.verdict.stage) == (Status.FAILS, "device_memory_check")
    assert seen.verdict.message is not None
    assert (
        "Free memory on device cuda:0 (12.0/23.65 GiB) on startup is less than desired GPU memory"
        in seen.verdict.message
    )


def test_weights_larger_than_the_card_fail_while_loading() -> None:
    seen = prediction("meta-llama/Llama-3.1-70B-Instruct", "RTX 4090")
    assert (seen.verdict.status, seen.verdict.stage) == (Status.FAILS, "weight_load")


def test_what_a_log_measured_replaces_the_estimate_and_its_spread() -> None:
    seen = prediction("Qwen/Qwen3-8B", "RTX 4090", measured={"activation": GIB}, max_model_len=4096)
    assert seen.ledger is not None
    activation = seen.ledger.activation
    assert (activation.low, activation.expected, activation.high, activation.basis) == (
        GIB,
        GIB,
        GIB,
        "measured",
    )


HYBRID = {
    "vllm": "0.28.0",
    "tensor_parallel_size": 2,
    "gpu_memory_utilization": 0.9,
    "max_model_len": 100352,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 3135,
    "mamba_cache_mode": "align",
    "assume_quantization": "w4a16",
    "measured": {"available": int(3.47 * GIB)},
    "measured_with": "--attention-backend FLASH_ATTN",
}


def test_a_log_with_one_backend_prices_another_without_its_uncertainty() -> None:
    """vllm#55509: FLASH_ATTN serves 145 blocks of 24.5 MiB, 108,589 tokens; FLASHINFER fails."""
    flash = prediction("Qwen/Qwen3.6-27B", "2x RTX 5060 Ti 16GB", attention_backend="FLASH_ATTN", **HYBRID)
    other = prediction("Qwen/Qwen3.6-27B", "2x RTX 5060 Ti 16GB", attention_backend="FLASHINFER", **HYBRID)
    assert flash.pool is not None
    assert (flash.pool.num_blocks, flash.pool.tokens) == (145, 108_589)
    assert flash.pool.needed_bytes / GIB == pytest.approx(3.21, abs=0.005)
    assert flash.verdict.status is Status.FITS
    assert other.verdict.status is Status.FAILS
    assert other.ledger is not None
    assert flash.ledger is not None
    assert 0.3 < (flash.ledger.available.expected - other.ledger.available.expected) / GIB < 0.4


def test_a_refusal_of_vllm_is_a_verdict_with_its_text() -> None:
    seen = prediction("Qwen/Qwen3-8B", "RTX 4090", max_model_len=999_999)
    assert (seen.verdict.status, seen.verdict.stage) == (Status.FAILS, "config")
    assert "User-specified max_model_len (999999) is greater than the derived max_model_len" in str(
        seen.verdict.message
    )


def test_predicting_does_not_change_the_setup() -> None:
    seen = prediction("Qwen/Qwen3-8B", "RTX 4090", max_model_len=4096)
    assert predict(seen.setup).ledger == seen.ledger


def test_kv_heads_that_cannot_be_dealt_stop_the_model_while_it_is_built() -> None:
    """28 heads divide by 7, but 4 KV heads neither divide by 7 nor divide it (models/qwen2.py asserts it)."""
    seen = kvroom.plan("Qwen/Qwen2.5-7B-Instruct", gpu="8x RTX 4090", offline=True, tensor_parallel_size=7)
    assert (seen.verdict.status, seen.verdict.stage) == (Status.FAILS, "weight_load")
    assert seen.predicted_log[-1] == "AssertionError"
    assert seen.advice.remedies[0].flags == ("--tensor-parallel-size", "4")


@pytest.mark.parametrize("stages", [40, 4096])
def test_a_pipeline_stage_without_a_cache_is_refused_by_the_planner(stages: int) -> None:
    seen = prediction("Qwen/Qwen3-8B", "H100", vllm="0.28.0", pipeline_parallel_size=stages)

    assert (seen.verdict.status, seen.verdict.stage) == (Status.FAILS, "kv_sizing")
    assert seen.verdict.message == "AssertionError: group_size must be greater than 0"
