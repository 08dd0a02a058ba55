"""``kvroom engine``, with engines that were made by a pip without an index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tracing.fakes import Silent, usual_tools

from kvroom.cli.main import run
from kvroom.tracing.install import Wishes, install
from kvroom.tracing.keep import Keep


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    monkeypatch.setenv("KVROOM_ENGINES", str(tmp_path / "engines"))
    return Keep(tmp_path / "engines")


def test_nothing_is_kept(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engine", "list"]) == 0
    assert "kvroom engine install 0.28.0" in capsys.readouterr().out
    assert run(["engine", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engines"] == []
    assert not keep.folder.exists()


def test_what_is_kept_is_listed_and_removed(keep: Keep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = usual_tools(tmp_path / "index")
    for version in ("0.16.0", "0.28.0"):
        install(Wishes(version), keep, tools, Silent())
    (keep.release_folder("0.16.0") / "kept.json").write_text("")
    assert run(["engine", "list"]) == 0
    head, first, second, *_, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["vLLM", "Python", "transformers", "size", "made", "works"]
    assert first.split()[0] == "0.16.0"
    assert first.endswith("no: kept.json is missing or damaged")
    assert second.split()[0] == "0.28.0"
    assert second.endswith("yes")
    assert last == f"in {keep.folder}"
    assert run(["engine", "list", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], [one["works"] for one in data["engines"]]) == ("kvroom/1", [False, True])
    assert run(["engine", "install", "0.28"]) == 0
    assert "vLLM 0.28.0 was here already" in capsys.readouterr().out
    assert run(["engine", "remove", "0.16.0"]) == 0
    assert capsys.readouterr().out.startswith("removed vLLM 0.16.0, ")
    assert run(["engine", "remove", "--all"]) == 0
    assert "base-" in capsys.readouterr().out
    assert run(["engine", "remove", "--all"]) == 0
    assert capsys.readouterr().out == "nothing is kept here\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["remove"], "Give a version"),
        (["remove", "0.28.0", "--all"], "Give a version"),
        (["remove", "0.28.0"], "No engine of vLLM 0.28.0 is kept here"),
        (["install", "latest"], "is not a vLLM version"),
        (["install", "0.28.0", "--torch-index", "cpu"], "--torch-index"),
        (["install"], "VERSION"),
    ],
)
def test_wrong_usage(keep: Keep, capsys: pytest.CaptureFixture[str], args: list[str], message: str) -> None:
    assert run(["engine", *args]) == 2
    assert message in capsys.readouterr().err
