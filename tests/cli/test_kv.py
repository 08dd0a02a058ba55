"""``kvroom kv``: the table, the page, the data, the errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvroom.cli.kv import kv
from kvroom.errors import KvroomError

MODEL = ["meta-llama/Llama-3.1-8B-Instruct", "--offline"]


def _run(*words: str) -> str:
    result = CliRunner().invoke(kv, [*MODEL, *words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def test_the_table_marks_what_the_pool_does_not_hold() -> None:
    text = _run("--pool", "20GiB", "--context", "8k,32k", "--concurrency", "1,16")
    assert "128.0 KiB for each further token" in text
    rows = {row.split()[0]: row.split() for row in text.splitlines() if re.match(r" *(8,192|32,768) ", row)}
    assert rows["8,192"] == ["8,192", "512", "1.00", "GiB", "16.00", "GiB", "20", "(20.00)"]
    assert rows["32,768"] == ["32,768", "2,048", "4.00", "GiB", "64.00", "GiB*", "5", "(5.00)"]
    assert "full_attention" in text
    assert "--- pool, 20.00 GiB" in text


def test_the_pool_of_a_plan() -> None:
    data = json.loads(_run("--gpu", "RTX 4090", "--json"))
    assert data["kind"] == "kv"
    assert data["pool_bytes"] > 2**31
    assert "NVIDIA GeForce RTX 4090" in data["pool_why"]
    assert data["rows"][-1]["context"] == 131072
    assert data["rows"][0]["batches"][0]["fits"] is True


def test_without_a_card_or_a_pool_sizes_alone() -> None:
    data = json.loads(_run("--json", "--context", "4k"))
    assert data["pool_bytes"] is None
    assert data["rows"][0]["sequences"] is None
    assert any("H100" in note for note in data["notes"])


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page, plot = tmp_path / "kv.html", tmp_path / "kv.svg"
    _run("--pool", "20GiB", "--html", str(page))
    _run("--pool", "20GiB", "--html", str(plot))
    text = page.read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert text.count("<svg ") == 1
    links = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')>\s]+)""", text)
    assert not links
    assert plot.read_text("utf-8").startswith('<svg xmlns="http://www.w3.org/2000/svg"')


def test_text_in_the_page_is_escaped(tmp_path: Path) -> None:
    page = tmp_path / "kv.html"
    folder = tmp_path / "<b>&"
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
              "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000,
              "max_position_embeddings": 4096}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    result = CliRunner().invoke(
        kv, [str(folder), "--offline", "--pool", "1GiB", "--html", str(page)], standalone_mode=False
    )
    assert result.exception is None
    assert "<b>" not in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--context", "500k"], "131,072"),
        (["--context", "lots"], "--context"),
        (["--concurrency", "0"], "--concurrency"),
        (["--concurrency", ",".join(str(n) for n in range(1, 12))], "more than a table shows"),
        (["--pool", "minus"], "minus"),
        (["--gpu", "no such card"], "no such card"),
        (["--gpu", "RTX 3060", "--dtype", "float32"], "no KV pool"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], problem: str) -> None:
    with pytest.raises(KvroomError, match=re.escape(problem)):
        _run(*words)
