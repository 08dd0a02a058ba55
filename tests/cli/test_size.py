"""``kvroom size``: tables, data, exit codes, what is refused."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from kvroom.cli.size import size
from kvroom.errors import KvroomError


def _run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(size, [*words, "--offline", "--vllm", "0.28.0"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert result.return_value == code
    return result.output


NEED = ["Qwen/Qwen3-32B", "--context", "32k", "--concurrency", "8"]


def test_the_table_and_the_commands() -> None:
    text = _run(*NEED, "--gpu", "H100", "--gpu", "RTX 4090")
    assert text.startswith("Qwen/Qwen3-32B: 8 requests of 32,768 tokens at once, vLLM 0.28.0")
    assert re.search(r"1\. +1 x NVIDIA H100 80GB HBM3 ", text)
    assert "vllm serve Qwen/Qwen3-32B --max-model-len 32768 --max-num-seqs 8" in text
    assert "candidates through the ledger" in text


def test_the_data() -> None:
    data = json.loads(
        _run(*NEED, "--gpu", "H100", "--gpu", "L40S", "--price", "H100=$2.5/h", "--price", "L40S=$0.9/h", "--json")
    )
    assert data["kind"] == "size"
    assert data["currency"] == "USD"
    assert data["need"]["concurrency"] == 8
    costs = [option["price"] for option in data["options"]]
    assert costs == sorted(costs)
    first = data["options"][0]
    assert first["room_low"] >= 8
    assert first["command"][:3] == ["vllm", "serve", "Qwen/Qwen3-32B"]
    assert data["searched"]["judged"] > 0


def test_nothing_holds_it() -> None:
    text = _run("Qwen/Qwen3-32B", "--context", "32k", "--concurrency", "900", "--gpu", "2x RTX 4090", code=1)
    assert "NONE" in text
    assert re.search(r"near: 2 x NVIDIA GeForce RTX 4090 .* GiB a GPU too small", text)


def test_flags_hold_for_every_candidate() -> None:
    data = json.loads(_run(*NEED, "--gpu", "H100", "--kv-cache-dtype", "fp8", "--max-num-seqs", "64", "--json"))
    for option in data["options"]:
        assert option["kv_cache_dtype"] == "auto"  # not the search's to choose
        assert option["command"].count("--kv-cache-dtype") == 1
        assert option["command"].count("--max-num-seqs") == 1


@pytest.mark.parametrize("kind", ["command", "docker", "compose", "k8s"])
def test_a_row_is_handed_over_as_a_deployment(kind: str) -> None:
    text = _run(*NEED, "--gpu", "H100", "--variants", "fp8", "--emit", kind)
    assert "Qwen/Qwen3-32B" in text
    assert "32768" in text
    assert "0.28.0" in text or kind == "command"


def test_several_models_on_a_card() -> None:
    words = ["Qwen/Qwen3-8B", "--context", "16k", "--concurrency", "4", "--with", "Qwen/Qwen3-0.6B@8k:2", "--gpu"]
    data = json.loads(_run(*words, "H100", "--json"))
    assert data["fits"]
    assert [one["concurrency"] for one in data["instances"]] == [4, 2]
    assert "FAILS" in _run(*words, "RTX 3060", code=1)


def test_the_inverse() -> None:
    text = _run("--have", "RTX 3060", "--context", "16k", "--concurrency", "2", "--top", "3")
    assert text.startswith("On 1 x NVIDIA GeForce RTX 3060, vLLM 0.28.0: 2 requests of 16,384 tokens or more at once")
    assert "The largest" in text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "No model is named"),
        (["Qwen/Qwen3-8B"], "size of a request is missing"),
        (["Qwen/Qwen3-8B", "--context", "128k"], "longer than"),
        (["Qwen/Qwen3-8B", "--context", "8k", "-tp", "2"], "chosen by the search"),
        (["Qwen/Qwen3-8B", "--context", "8k", "--max-model-len", "4096"], "chosen by the search"),
        (["Qwen/Qwen3-8B", "--context", "8k", "--no-such-flag"], "no-such-flag"),
        (["Qwen/Qwen3-8B", "--context", "8k", "--variants", "int3"], "int3"),
        (["Qwen/Qwen3-8B", "--context", "8k", "--kv-dtypes", "fp9"], "fp9"),
        (["Qwen/Qwen3-8B", "--context", "8k", "--price", "H100=2.5 bananas"], "price"),
        (["Qwen/Qwen3-8B", "--context", "8k", "--max-gpus", "0"], "--max-gpus"),
        (["Qwen/Qwen3-8B", "--context", "8k", "--gpus-per-node", "0"], "--gpus-per-node"),
        (["Qwen/Qwen3-8B", "--context", "8k", "--jobs", "0"], "--jobs"),
        (["Qwen/Qwen3-8B", "--with", "Qwen/Qwen3-0.6B@8k"], "--with needs"),
        (["Qwen/Qwen3-8B", "--have", "4x RTX 3090"], "--have asks"),
        (["--have", "0x RTX 3090"], "0 GPUs"),
        ([*NEED, "--gpu", "H100", "--emit", "k8s", "--pick", "90"], "--pick 90"),
        ([*NEED, "--with", "Qwen/Qwen3-0.6B@8k", "--gpu", "H100", "--emit", "k8s"], "--emit writes one launch"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], problem: str) -> None:
    with pytest.raises(KvroomError, match=re.escape(problem)):
        _run(*words)
