"""``kvroom throughput``: the table, the data, what is refused."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from kvroom.cli.throughput import throughput
from kvroom.errors import KvroomError

BASE = ["Qwen/Qwen3-8B", "--gpu", "H100", "--max-model-len", "16384", "--vllm", "0.28.0"]


def _run(*words: str) -> str:
    result = CliRunner().invoke(throughput, [*words, "--offline"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def test_the_table() -> None:
    text = _run(*BASE, "--concurrency", "1,16", "--ttft", "500ms", "--tpot", "20ms")
    assert text.startswith("Qwen/Qwen3-8B on 1 x NVIDIA H100 80GB HBM3, vLLM 0.28.0")
    assert re.search(r"\n +16 .* ms .* memory\n", text)
    assert re.search(r"Goodput under TTFT 500ms and TPOT 20ms: \d+\.\d+ requests/s", text)
    assert "public runs on" in text


def test_the_data_and_a_measured_run() -> None:
    plain = json.loads(_run(*BASE, "--concurrency", "16", "--json"))
    assert plain["kind"] == "throughput"
    row = plain["rows"][0]
    assert row["tpot_low"] < row["tpot"] < row["tpot_high"]
    run = f"concurrency=16,input=1024,output=256,tpot={2000 * row['tpot']:.4f}ms"
    scaled = json.loads(_run(*BASE, "--concurrency", "16", "--measured", run, "--json"))
    assert scaled["basis"] == "measured"
    assert scaled["rows"][0]["tpot"] == pytest.approx(2 * row["tpot"], rel=0.01)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([*BASE, "--input-len", "many"], "--input-len"),
        ([*BASE, "--input-len", "16000", "--output-len", "1000"], "longer than max_model_len"),
        ([*BASE, "--tpot", "50"], "--tpot"),
        ([*BASE, "--concurrency", "1000000"], "more than a table shows"),
        ([*BASE, "--measured", "tpot=5"], "--measured"),
        (["Qwen/Qwen3-32B", "--gpu", "RTX 4090"], "serves nothing"),
        (["Qwen/Qwen3-0.6B", "--gpu", "RTX 3050"], "no memory bandwidth"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], problem: str) -> None:
    with pytest.raises(KvroomError, match=re.escape(problem)):
        _run(*words)
