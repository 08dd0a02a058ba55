"""``kvroom quant``: the table, the data, what is refused."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from kvroom.cli.quant import quant
from kvroom.errors import KvroomError


def _run(*words: str) -> str:
    result = CliRunner().invoke(quant, [*words, "--offline"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def test_the_table() -> None:
    text = _run("Qwen/Qwen3-32B", "--gpu", "RTX 4090", "--context", "16k", "--concurrency", "2", "--vllm", "0.20.0")
    assert text.startswith("Qwen/Qwen3-32B on 1 x NVIDIA GeForce RTX 4090, vLLM 0.20.0")
    assert re.search(r"16 bit, as published +61\.0\d GiB +none +- +- +no +native +4\n", text)
    assert re.search(r"w4a16 \(compressed-tensors\) .* weight-only +2 \(2 saved\)\n", text)
    assert "arXiv:2411.02355" in text


def test_the_data() -> None:
    data = json.loads(_run("Qwen/Qwen3-8B", "--gpu", "H100", "--vllm", "0.28.0", "--json"))
    assert data["kind"] == "quant"
    rows = {row["name"]: row for row in data["rows"]}
    assert rows["gguf:Q8_0"]["runs"] is False
    assert rows["fp8"]["weights_bytes"] < rows["16 bit"]["weights_bytes"]
    assert rows["awq"]["checkpoint"] is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["Qwen/Qwen3-8B", "--gpu", "H100", "--find"], "offline"),
        (["Qwen/Qwen3-8B", "--gpu", "H100", "--context", "x"], "--context"),
        (["Qwen/Qwen3-8B", "--gpu", "H100", "-tp", "3"], "refuses this launch"),
        (["Qwen/Qwen3-8B", "--gpu", "H100", "--no-such-flag"], "no-such-flag"),
        (["--gpu", "H100"], "No model is named"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], problem: str) -> None:
    with pytest.raises(KvroomError, match=re.escape(problem)):
        _run(*words)
