"""Predictions of trials, before and after a start was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvroom.doctor.diagnose import diagnose
from kvroom.plans.request import Request
from kvroom.trials.foresee import CardForesight, HostForesight
from kvroom.units import GIB, MIB
from kvroom.vllm.releases import Release

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
RELEASE = Release(0, 32, 0)
FIXED = ["--kv-cache-memory-bytes", str(64 * MIB)]


def host(free: int = 20 * GIB) -> HostForesight:
    return HostForesight(24 * GIB, lambda: free, RELEASE, offline=True)


@pytest.mark.parametrize(
    ("flags", "status", "tokens"),
    [
        ([*FIXED, "--max-model-len", "4096"], "fits", 65536),
        ([*FIXED, "--max-model-len", "4096", "--max-num-seqs", "500"], "fits", 65536),
        (["--kv-cache-memory-bytes", str(MIB), "--max-model-len", "4096"], "fails", 1024),
    ],
)
def test_bytes_that_are_asked_for_are_exact_on_the_cpu(model: str, flags: list[str], status: str, tokens: int) -> None:
    """As the real CPU engine of 0.32.0 logged for this model (tests/data/logs)."""
    found = host().forecast(["--model", model, *flags], {})

    assert (found.status, found.kv_tokens) == (status, tokens)


def test_the_refusal_has_the_engines_own_words_and_what_would_fit(model: str) -> None:
    found = host().forecast(["--model", model, "--max-model-len", "4096", "--kv-cache-memory-bytes", str(MIB)], {})

    assert found.stage == "kv_sizing"
    assert "estimated maximum model length is 896" in str(found.message)
    assert (found.needed_bytes, found.longest) == (4 * MIB, 896)


def test_the_variable_of_the_cpu_build_counts_as_bytes(model: str) -> None:
    found = host().forecast(["--model", model, "--max-model-len", "4096"], {"VLLM_CPU_KVCACHE_SPACE": "1"})

    assert found.kv_tokens == 1 << 20


def test_more_memory_than_is_free_cannot_start(model: str) -> None:
    found = host(free=GIB).forecast(["--model", model, "--gpu-memory-utilization", "0.5"], {})

    assert (found.status, found.stage) == ("fails", "device_memory_check")


def test_a_share_of_the_memory_is_exact_once_one_start_was_measured(model: str) -> None:
    foresight = host()
    words = ["--model", model, "--max-model-len", "4096", "--gpu-memory-utilization", "0.5"]
    assert foresight.forecast(words, {}).status == "fits"
    log = (
        "INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.32.0\n"
        "INFO 01-02 03:04:06 [gpu_worker.py:1] Available KV cache memory: 10.50 GiB\n"
        "INFO 01-02 03:04:07 [kv_cache_utils.py:1] CPU KV cache size: 11,010,048 tokens\n"
    )
    assert foresight.learn(words, {}, diagnose(log))

    assert foresight.forecast(words, {}).kv_tokens == int(10.5 * GIB) // (128 << 10) * 128
    more = foresight.forecast([*words[:-1], "0.6"], {})
    assert more.available_bytes == pytest.approx(int(10.5 * GIB) + 0.1 * 24 * GIB, abs=MIB)


def test_a_model_that_nobody_knows_is_unknown_and_no_error(tmp_path: Path) -> None:
    assert host().forecast(["--model", str(tmp_path / "none")], {}).status == "unknown"
    request = Request(gpu="RTX 4090", vllm="0.11.0", offline=True)
    assert CardForesight(request).forecast(["no/such-model"], {}).status == "unknown"


def test_what_a_start_on_a_card_measured_moves_the_next_prediction() -> None:
    foresight = CardForesight(Request(gpu="RTX 4090", vllm="0.11.0", offline=True))
    words = [LLAMA, "--max-model-len", "16384", "--gpu-memory-utilization", "0.85"]
    before = foresight.forecast(words, {})
    log = Path(__file__).parents[2] / "docs" / "examples" / "serving.log"

    assert foresight.learn(words, {}, diagnose(log, gpu="RTX 4090", command=["vllm", "serve", *words], offline=True))
    after = foresight.forecast(words, {})
    assert before.basis == "estimated"
    assert (after.basis, after.kv_tokens) == ("measured", 27104)
    more = foresight.forecast([*words, "--gpu-memory-utilization", "0.87"], {})
    assert more.available_bytes is not None
    assert after.available_bytes is not None
    assert more.available_bytes > after.available_bytes


def test_a_launch_that_fails_comes_with_remedies() -> None:
    foresight = CardForesight(Request(gpu="RTX 3090", vllm="0.28.0", offline=True))
    found = foresight.forecast([LLAMA], {})

    assert found.status == "fails"
    assert {"max_model_len": 49152} in found.remedies


def test_a_log_without_a_measurement_teaches_nothing(model: str) -> None:
    diagnosis = diagnose("INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.32.0\n")

    assert not host().learn(["--model", model], {}, diagnosis)
    assert not CardForesight(Request(gpu="L4", vllm="0.32.0")).learn([LLAMA], {}, diagnosis)
