from __future__ import annotations

import pytest
from tests.vllm.kv.makers import rules

from kvroom.units import GIB
from kvroom.vllm.kv.messages import auto_fit_line, ranks_lines, shown_gib, size_lines, too_small

NEW = (
    "To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is "
    "larger than the available KV cache memory (4.25 GiB). Based on the available memory, the estimated maximum "
    "model length is 34816. Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU "
    "backend) or decreasing `max_model_len` when initializing the engine. See "
    "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
)
OLD = (
    "To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is "
    "larger than the available KV cache memory (4.25 GiB). Based on the available memory, the estimated maximum "
    "model length is 34816. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
    "initializing the engine."
)


@pytest.mark.parametrize(("release", "text"), [("0.10.2", OLD), ("0.28.0", NEW), ("0.33.0", NEW)])
def test_one_request_does_not_fit(release: str, text: str) -> None:
    assert too_small(16 * GIB, int(4.25 * GIB), 131072, 34816, rules(release)) == text


def test_no_length_fits() -> None:
    text = too_small(16 * GIB, 1, 131072, 0, rules("0.33.0"))
    assert "(0.0 GiB). Try increasing" in text


@pytest.mark.parametrize(("release", "text"), [("0.13.0", "16.00"), ("0.14.1", "16.0")])
def test_gibibytes(release: str, text: str) -> None:
    assert shown_gib(16 * GIB, rules(release)) == text


def test_automatic_lengths() -> None:
    assert auto_fit_line(131072, 131072, GIB, rules("0.14.1")) == (
        "Auto-fit max_model_len: full model context length 131072 fits in available GPU memory"
    )
    assert auto_fit_line(81904, 131072, 10 * GIB, rules("0.32.0")) == (
        "Auto-fit max_model_len: reduced from 131072 to 81904 to fit in available KV cache memory (10.0 GiB GPU)"
    )


def test_the_size_of_the_cache() -> None:
    assert size_lines(327680, 131072, 2.5, rules("0.16.0")) == (
        "GPU KV cache size: 327,680 tokens",
        "Maximum concurrency for 131,072 tokens per request: 2.50x",
    )
    assert size_lines(327680, 131072, 2.5, rules("0.33.0")) == (
        "GPU KV cache size: 327,680 tokens, Maximum concurrency for 131,072 tokens per request: 2.50x",
    )


def test_context_parallel_ranks_were_announced_to_0_19() -> None:
    assert ranks_lines(4, 2, rules("0.16.0")) == (
        "Multiplying the GPU KV cache size by the cp_world_size 4 (pcp_world_size 2 * dcp_world_size 2).",
    )
    assert ranks_lines(4, 2, rules("0.20.2")) == ()
    assert ranks_lines(1, 1, rules("0.16.0")) == ()
