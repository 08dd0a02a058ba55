from __future__ import annotations

import pytest

import kvroom

BUDGET = {"max_model_len": 8192, "offline": True, "gpu": "A100-80GB"}


@pytest.mark.parametrize(
    ("release", "size_line"),
    [
        ("0.19.1", "GPU KV cache size: {tokens:,} tokens"),
        (
            "0.28.0",
            "GPU KV cache size: {tokens:,} tokens, Maximum concurrency for 8,192 tokens per request: {c:.2f}x",
        ),
        (
            "0.32.0",
            "GPU KV cache size: {tokens:,} tokens, Maximum concurrency for 8,192 tokens per request: {c:.2f}x",
        ),
    ],
)
def test_the_lines_are_those_of_the_release(release: str, size_line: str) -> None:
    plan = kvroom.plan("Qwen/Qwen3-8B", vllm=release, **BUDGET)
    pool = plan.prediction.pool
    assert pool is not None
    log = plan.predicted_log
    assert size_line.format(tokens=pool.tokens, c=pool.max_concurrency) in log
    assert log.index("Using max model len 8192") == 0
    assert [line.split(":")[0] for line in log if line.startswith("Available")] == ["Available KV cache memory"]


@pytest.mark.parametrize(
    ("release", "weights"),
    [
        ("0.8.5", "Model loading took 15.2683 GiB"),
        ("0.13.0", "Model loading took 15.2683 GiB memory"),
        ("0.28.0", "Model loading took 15.27 GiB memory"),
    ],
)
def test_the_weights_line_has_the_releases_decimals(release: str, weights: str) -> None:
    plan = kvroom.plan("Qwen/Qwen3-8B", vllm=release, **BUDGET)
    (line,) = [line for line in plan.predicted_log if line.startswith("Model loading")]
    assert line.startswith(weights[: weights.index(".") + 2])
    digits = line.split("took ")[1].split(" ")[0].split(".")[1]
    assert len(digits) == len(weights.split("took ")[1].split(" ", maxsplit=1)[0].split(".")[1])


def test_a_failing_launch_ends_with_the_error() -> None:
    plan = kvroom.plan("meta-llama/Llama-3.1-8B-Instruct", gpu="RTX 3090", vllm="0.28.0", offline=True)
    last = plan.predicted_log[-1]
    assert last == f"ValueError: {plan.verdict.message}"
    assert "(16.0 GiB KV cache is needed" in last
    assert not any("KV cache size" in line for line in plan.predicted_log)


def test_a_launch_refused_at_the_settings_prints_nothing_else() -> None:
    plan = kvroom.plan("Qwen/Qwen3-8B", gpu="3x RTX 3090", tensor_parallel_size=3, offline=True)
    assert len(plan.predicted_log) == 1
    assert "must be divisible by tensor parallel size" in plan.predicted_log[0]
