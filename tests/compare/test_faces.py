"""The command line of ``kvroom compare``: text, JSON, Markdown, exit codes, and input that means harm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvroom.cli.main import run

LOGS = Path(__file__).parent / "logs"
GOOD, BAD, AGAIN = (str(LOGS / f"{name}.log") for name in ("seqs-256", "seqs-1024", "again"))
ROW = {"name", "good", "bad", "default_good", "default_bad"}


def test_text_has_the_sentence_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", GOOD, BAD, "--offline"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Only --max-num-seqs differs (256 -> 1024)")
    assert "max_num_seqs  256 (default)  1024" in lines
    assert any(line.split() == ["available", "4.56", "GiB", "0.46", "GiB", "-4.10", "GiB", "*"] for line in lines)


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", GOOD, AGAIN, "--offline"]) == 0
    assert run(["compare", GOOD, BAD, "--offline"]) == 1
    assert run(["compare", GOOD, BAD, "--json", "--format", "github"]) == 2
    capsys.readouterr()


def test_the_json_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", GOOD, BAD, "--offline", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["kind"], data["same"]) == ("kvroom/1", "comparison", False)
    assert data.keys() >= {"good", "bad", "settings", "ledger", "pool", "moved", "sentence"}
    assert all(row.keys() >= ROW for row in data["settings"])
    assert all(row.keys() >= {"entry", "good", "bad", "difference"} for row in [*data["ledger"], *data["pool"]])
    assert all(isinstance(row["good"], int | None) for row in data["ledger"])
    assert data["moved"].keys() >= {"entry", "good", "bad", "difference", "setting"}
    assert data["bad"]["stage"] == "kv_sizing"
    assert data["bad"]["error"]["line"] == 17
    names = [row["name"] for row in data["settings"]]
    assert names.index("version") < names.index("gpu_memory_utilization") < names.index("max_num_seqs")
    assert run(["compare", GOOD, AGAIN, "--offline", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["moved"] is None


def test_a_command_after_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "16384"]
    assert run(["compare", GOOD, "--offline", "--json", "--", *words]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["bad"]["is"] == "command"
    assert {row["basis_bad"] for row in data["ledger"]} == {"predicted"}


def test_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", GOOD, BAD, "--offline", "--format", "github"]) == 1
    out = capsys.readouterr().out
    assert "| max\\_num\\_seqs | 256 (default) | 1024 |" in out
    assert out.count("<details open>") == out.count("</details>") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Nothing to compare."),
        ([GOOD], "holds one start of vLLM, and two are compared."),
        (["missing.log", GOOD], "missing.log cannot be read: No such file or directory."),
        ([GOOD, "nothing at all"], "is neither a file nor a command that starts vLLM."),
        ([GOOD, "vllm serve 'x"], "error: "),
        ([GOOD, "vllm serve a/b; vllm serve c/d"], "The command starts 2 servers, and one is compared."),
        ([GOOD, str(LOGS)], "cannot be read"),
    ],
)
def test_wrong_usage(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "--offline", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty."), (b"hello\nworld\n", "is no log of vLLM."), (bytes(range(32)) * 99, "This is no text.")],
)
def test_files_that_are_no_logs(content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.log"
    path.write_bytes(content)
    assert run(["compare", GOOD, str(path), "--offline"]) == 2
    assert said in capsys.readouterr().err


HOSTILE = (
    ("Qwen/Qwen3-8B", "x\x1b[31m@team | <img src=x onerror=alert(1)> [link](http://example.com) `"),
    ("'max_model_len': 16384", "'max_model_len': 9" + "9" * 400),
    ("'max_model_len': 16384", "'max_num_seqs': -1, 'max_model_len': '\u202eauto'"),
    ("'max_model_len': 16384", "'api_key': 'sk-proj-abcdefghijklmnopqrstuvwxyz0123456789', 'max_model_len': 16384"),
    ("'max_model_len': 16384", "'hf_overrides': " + "{'a': " * 60 + "1" + "}" * 60 + ", 'max_model_len': 16384"),
    ("'max_model_len': 16384", "'hf_overrides': {'token': 'hf_abcdefghijklmnopqrstuvwxyzABCDEFGH'}"),
    ("'max_model_len': 16384", "'hf_overrides': {'a': {'api_key': 'root:plainsecret'}}, 'max_model_len': 16384"),
    ("4.56 GiB", "-" + "8" * 300 + ".0 GiB"),
    ("33,200 tokens", "0 tokens"),
    ("33,200 tokens", "1" * 500 + " tokens"),
    ("16384", "0"),
    ("0.12.0", "999999999999.1.2"),
    ("0.12.0", "0.1.dev7+gabc"),
    ("(0.9,", "(0.0,"),
    ("23.65", "0.0"),
    ("23.65", "1e9"),
    ("bfloat16", "complex64"),
    ("tensor_parallel_size=1", "tensor_parallel_size=100000000000"),
    ("'max_model_len': 16384", "'tensor_parallel_size': 7, 'pipeline_parallel_size': 3, 'max_model_len': 16384"),
    ("FLASH_ATTN", "NO_SUCH_BACKEND"),
    ("'max_model_len': 16384", "'config': '/etc/passwd', 'max_model_len': 16384"),
)


@pytest.mark.parametrize("form", ["text", "json", "github"])
@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: repr(change[1])[:30])
def test_hostile_logs(change: tuple[str, str], form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hostile.log"
    text = Path(GOOD).read_text("utf-8")
    assert change[0] in text
    path.write_text(text.replace(*change), "utf-8")
    for pair in ([GOOD, str(path)], [str(path), GOOD], [str(path), str(path)]):
        assert run(["compare", *pair, "--offline", "--format", form]) in {0, 1}
        out = capsys.readouterr().out
        assert not any(sign in out for sign in ("\x1b", "\u202e", "sk-proj-abc", "hf_abcdef", "root:"))
        if form == "json":
            json.loads(out, parse_constant=pytest.fail)
        if form == "github":
            assert "<img" not in out
            assert "[link](" not in out.replace("\\[link\\](", "")
            assert "@team" not in out
