"""Traced plans of tiny models beside what the real CPU engine logged for them (0.32.0, ``tests/data/logs``)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvroom.tracing.engines import Engine
from kvroom.tracing.question import Inquiry, Question
from kvroom.tracing.run import Answer, ask
from tests.engine import environment

pytestmark = pytest.mark.engine
LOGS = Path(__file__).parents[1] / "data" / "logs"
MIB = 2**20
CARD = {"name": "NVIDIA H100 80GB HBM3", "capability": [9, 0], "total": 85 * 10**9, "used": 0}
CPU_BLOCK = ("--block-size", "128")
"""The CPU engine's; a pretended card would take its own."""
CPU_SCHEDULER = ("--max-num-batched-tokens", "2048", "--no-async-scheduling")
"""Its defaults: what may be in flight counts for sliding windows."""
COMMON: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
}
QWEN3 = COMMON | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
GPT_OSS = COMMON | {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "swiglu_limit": 7.0,
    "rope_theta": 150000,
}


def asked(folder: Path, config: dict[str, Any], available: int, *words: str) -> dict[str, Any]:
    """The pool that vLLM's planner makes of ``available`` bytes."""
    python = environment.python()
    if python is None:
        pytest.skip("no vLLM here: run tests/engine/environment.py first")
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    question = Question(("--model", str(folder), *CPU_BLOCK, *words), 0, (available,))
    engine = Engine(python, (), environment.NEWEST, "--python")
    (answer,) = ask(engine, Inquiry(CARD, {}, (question,)), lambda _: None)
    assert isinstance(answer, Answer), answer
    return answer.pools[0]


def logged(name: str, pattern: str) -> re.Match[str]:
    """The first place of ``pattern`` in a log."""
    found = re.search(pattern, (LOGS / name).read_text("utf-8"))
    assert found is not None
    return found


def test_the_refusal_is_that_of_the_log(tmp_path: Path) -> None:
    pool = asked(tmp_path, QWEN3, MIB)

    assert pool["error"] == logged("kv-capacity-error.log", r"\nValueError: (To serve at least one.*)")[1]


@pytest.mark.parametrize(
    ("log", "available", "words"),
    [
        ("kv-preempt.log", 64 * MIB, ("--max-model-len", "512", "--num-gpu-blocks-override", "12")),
        ("kv-autofit.log", MIB, ("--max-model-len", "-1")),
    ],
)
def test_tokens_and_concurrency_are_those_of_the_log(
    tmp_path: Path, log: str, available: int, words: tuple[str, ...]
) -> None:
    pool = asked(tmp_path, QWEN3, available, *words)

    said = logged(
        log, r"KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x"
    )
    assert f"{pool['tokens']:,}" == said[1]
    assert f"{pool['max_model_len']:,}" == said[2]
    assert f"{pool['max_concurrency']:.2f}" == said[3]


def test_a_hybrid_of_windows_has_the_pool_that_the_cpu_engine_logged(tmp_path: Path) -> None:
    """The real engine logged 83,886 tokens and 20.48x for 64 MiB."""
    pool = asked(tmp_path, GPT_OSS, 64 * MIB, *CPU_SCHEDULER)

    assert (pool["tokens"], f"{pool['max_concurrency']:.2f}") == (83_886, "20.48")
