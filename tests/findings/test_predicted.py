"""Findings that predict the launch again, and whole launches."""

from __future__ import annotations

import pytest

from kvroom.findings.finding import Severity
from kvroom.findings.launch import findings_of
from kvroom.findings.settings import fp8_cache_backend, hybrid_manager
from kvroom.plans.make import plan


def test_windows_stored_in_full_are_priced() -> None:
    prediction = plan(
        "google/gemma-3-27b-it",
        gpu="H100",
        vllm="0.28.0",
        max_model_len=131072,
        disable_hybrid_kv_cache_manager=True,
        offline=True,
    ).prediction
    (finding,) = hybrid_manager.find(prediction)
    assert "one request needs 62.00 GiB instead of 17.98 GiB" in finding.title
    assert finding.evidence[0].text == "--disable-hybrid-kv-cache-manager"


def test_a_connector_turns_the_manager_off() -> None:
    prediction = plan(
        "google/gemma-3-27b-it",
        gpu="H100",
        vllm="0.11.2",
        kv_transfer_config={"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
        offline=True,
    ).prediction
    (finding,) = hybrid_manager.find(prediction)
    assert "KV connector" in finding.advice[0]


@pytest.mark.parametrize("model", ["google/gemma-3-27b-it", "Qwen/Qwen3-8B"])
def test_the_manager_is_no_matter_where_it_is_on_or_nothing_is_windowed(model: str) -> None:
    off = model.startswith("Qwen")
    prediction = plan(
        model, gpu="H100", vllm="0.28.0", disable_hybrid_kv_cache_manager=off or None, offline=True
    ).prediction
    assert list(hybrid_manager.find(prediction)) == []


def test_an_8_bit_cache_brings_another_backend_on_ada() -> None:
    prediction = plan(
        "Qwen/Qwen3-8B", gpu="RTX 4090", vllm="0.28.0", kv_cache_dtype="fp8", max_model_len=8192, offline=True
    ).prediction
    (finding,) = fp8_cache_backend.find(prediction)
    assert "runs attention on FLASHINFER instead of FLASH_ATTN" in finding.title
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("gpu", "flags"),
    [
        ("H100", {"kv_cache_dtype": "fp8"}),
        ("RTX 4090", {}),
        ("RTX 4090", {"kv_cache_dtype": "fp8", "attention_backend": "FLASHINFER"}),
    ],
)
def test_a_backend_that_is_the_same_or_asked_for_is_no_finding(gpu: str, flags: dict[str, str]) -> None:
    prediction = plan("Qwen/Qwen3-8B", gpu=gpu, vllm="0.28.0", max_model_len=8192, offline=True, **flags).prediction
    assert list(fp8_cache_backend.find(prediction)) == []


def test_a_plain_launch_that_fits_has_no_findings() -> None:
    prediction = plan("Qwen/Qwen3-8B", gpu="RTX 4090", vllm="0.28.0", max_model_len=8192, offline=True).prediction
    assert findings_of(prediction) == ()


def test_an_old_guide_on_a_new_release() -> None:
    prediction = plan(
        "Qwen/Qwen3-8B",
        gpu="RTX 4090",
        vllm="0.28.0",
        max_model_len="8k",
        env={"VLLM_USE_V1": "0", "VLLM_ATTENTION_BACKEND": "XFORMERS"},
        swap_space=16,
        use_v2_block_manager=True,
        cpu_offload_gb=2,
        offline=True,
    ).prediction
    codes = [finding.code for finding in findings_of(prediction)]
    assert codes == ["KVR113", "KVR113", "KVR112", "KVR112", "KVR106", "KVR122"]
