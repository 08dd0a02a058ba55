"""`kvroom learn` and `kvroom learned` as a user meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.doctor.logs import CUT, REFUSED, SERVING

from kvroom.cli.main import run

ON = ["--gpu", "RTX 4090", "--offline"]
PLAN = ["plan", "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "8192", "--vllm", "0.11.0", *ON, "--json"]


@pytest.fixture
def log(tmp_path: Path, store_file: Path) -> str:
    path = tmp_path / "vllm.log"
    path.write_text(SERVING, "utf-8")
    return str(path)


def _json(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run(list(args)) == code
    return json.loads(capsys.readouterr().out)


def test_a_log_is_learned_listed_and_used(log: str, store_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _json(capsys, *PLAN)
    taught = _json(capsys, "learn", log, *ON, "--json")
    assert (taught["schema"], taught["kind"], taught["new"], taught["nothing"]) == ("kvroom/1", "learn", 1, [])
    kept = taught["learned"][0]
    assert (kept["source"], kept["gpu"], kept["gpus"]) == (log, "NVIDIA GeForce RTX 4090", 1)

    assert run(["learned"]) == 0
    assert kept["id"] in capsys.readouterr().out
    listed = _json(capsys, "learned", "--json")
    assert (listed["kind"], listed["store"]) == ("learned", str(store_file))
    assert listed["measurements"] == [{name: value for name, value in kept.items() if name != "source"}]

    after = _json(capsys, *PLAN)
    weights = {entry["entry"]: entry for entry in after["ledger"]}["weights"]
    assert (weights["basis"], weights["expected"]) == ("measured", kept["sizes"]["weights"])
    assert kept["id"] in after["notes"][-1]
    assert _json(capsys, *PLAN, "--no-learned") == before
    said = {entry["entry"]: entry for entry in _json(capsys, *PLAN, "--measured", "activation=1GiB")["ledger"]}
    assert (said["activation"]["basis"], said["weights"]["basis"]) == ("measured", "computed")
    checked = _json(capsys, "check", *ON, "--json", "--", "vllm", "serve", *PLAN[1:4])
    assert kept["id"] not in str(checked)  # the newest release, not the one of the log


def test_the_same_log_is_kept_once(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _json(capsys, "learn", log, log, *ON, "--json")["new"] == 1
    assert _json(capsys, "learn", log, *ON, "--json")["new"] == 0
    assert len(_json(capsys, "learned", "--json")["measurements"]) == 1


def test_a_log_with_nothing_to_learn_says_so(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.log").write_text(CUT, "utf-8")
    assert run(["learn", str(tmp_path / "cut.log"), *ON]) == 1
    assert "nothing to learn" in capsys.readouterr().out
    both = _json(capsys, "learn", str(tmp_path / "cut.log"), log, *ON, "--json", code=1)
    assert (len(both["learned"]), len(both["nothing"])) == (1, 1)
    assert run(["learn", str(tmp_path / "missing.log")]) == 2


def test_standard_input(store_file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvroom", "learn", "-", *ON], input=REFUSED, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("standard input: learned ")


def test_export_import_and_forget(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = _json(capsys, "learn", log, *ON, "--json")["learned"][0]["id"]
    carried = str(tmp_path / "carried.json")
    assert run(["learned", "--export", carried]) == 0
    data = json.loads(Path(carried).read_text("utf-8"))
    assert (data["schema"], data["kind"], "store" in data) == ("kvroom/1", "learned", False)

    assert run(["learned", "--forget", kept[:5]]) == 0
    assert _json(capsys, "learned", "--json")["measurements"] == []
    for new in ("1 new of 1", "0 new of 1"):
        assert run(["learned", "--import", carried]) == 0
        assert new in capsys.readouterr().out
    assert _json(capsys, "learned", "--json")["measurements"] == data["measurements"]
    assert run(["learned", "--forget", "--all"]) == 0
    assert "forgot 1" in capsys.readouterr().out
    assert run(["learned"]) == 0
    assert "nothing was learned yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--export", "a", "--import", "b"], "separate wishes"),
        (["--forget", "abc"], "Nothing was learned"),
        (["--forget"], "Say what to forget"),
        (["--all"], "Say what to forget"),
        (["--forget", "abc", "--all"], "Say what to forget"),
        (["--import", "/nowhere/at/all"], "cannot be read"),
        (["--import", "LOG"], "is no JSON"),
        (["--export", "/nowhere/at/all"], "cannot be written"),
    ],
)
def test_wrong_usage(log: str, capsys: pytest.CaptureFixture[str], args: list[str], said: str) -> None:
    assert run(["learned", *(log if word == "LOG" else word for word in args)]) == 2
    assert said in capsys.readouterr().err


def test_the_store_is_not_exported_over(log: str, store_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["learn", log, *ON])
    before = store_file.read_bytes()
    assert run(["learned", "--export", str(store_file)]) == 2
    assert store_file.read_bytes() == before


def test_a_damaged_store_is_one_error_and_a_plan_does_without(
    store_file: Path, log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _json(capsys, *PLAN)
    store_file.parent.mkdir()
    store_file.write_text("no database " * 100, "utf-8")
    for args in (["learn", log, *ON], ["learned"], ["learned", "--forget", "--all"]):
        assert run(args) == 2
        assert capsys.readouterr().err.count("cannot be used") == 1
    after = _json(capsys, *PLAN)
    assert "cannot be used" in after["notes"].pop()
    assert after == before
    assert store_file.read_text("utf-8").startswith("no database")
