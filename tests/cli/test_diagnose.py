"""`kvroom diagnose` as a user meets it: faces, exit codes, a log that is still being written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.doctor.logs import CUT, REFUSED, SERVING

from kvroom.cli.inputs import follow_log
from kvroom.cli.main import run
from kvroom.doctor.diagnose import open_log
from kvroom.files import open_stream
from kvroom.logs.reading import State


@pytest.fixture
def refused(tmp_path: Path) -> str:
    path = tmp_path / "vllm.log"
    path.write_text(REFUSED, "utf-8")
    return str(path)


def test_a_file_is_diagnosed_in_plain_text(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", refused, "--gpu", "RTX 4090", "--offline"]) == 1

    printed = capsys.readouterr().out
    assert "FAILS  it did not start: stopped at stage kv_sizing" in printed
    assert "KVR203" in printed
    assert "--max-model-len" in printed


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text, code in (
        ("ok", SERVING, 0),
        ("cut", CUT, 3),
    ):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        assert run(["diagnose", str(path), "--gpu", "RTX 4090", "--offline"]) == code
    assert run(["diagnose", str(tmp_path / "missing")]) == 2
    assert run(["diagnose", str(tmp_path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_standard_input() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvroom", "diagnose", "-", "--json", "--offline"],
        input=REFUSED,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"]["stage"] == "kv_sizing"


def test_several_files_are_a_list(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["diagnose", refused, refused, "--json", "--offline"])

    assert [each["kind"] for each in json.loads(capsys.readouterr().out)] == ["diagnosis", "diagnosis"]


def test_markdown_and_a_share_file(refused: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = tmp_path / "ticket.md"

    run(["diagnose", refused, "--format", "github", "--share", str(shared), "--offline"])

    assert capsys.readouterr().out.startswith("**FAILS**")
    assert "<details>" in shared.read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_share_file_that_cannot_be_written_is_one_error(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", refused, "--share", "/nowhere/at/all.md", "--offline"]) == 2
    assert "cannot be written" in capsys.readouterr().err


class Written:
    """A log that grows by a line whenever somebody waits."""

    def __init__(self, text: str) -> None:
        self.lines, self.shown, self.now = text.splitlines(keepends=True), 0, 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.shown = min(self.shown + 1, len(self.lines))

    def text(self) -> str:
        return "".join(self.lines[: self.shown])

    def follow(self) -> State:
        log = follow_log(
            lambda: open_log(self.text()),
            lambda: len(self.text()),
            lambda: self.now,
            self.sleep,
            lambda: self.now > 500,
        )
        return log.readings[0].state


def test_following_ends_as_soon_as_it_serves() -> None:
    log = Written(SERVING + "INFO: more\n" * 100)

    assert log.follow() is State.SERVING
    assert log.shown == len(SERVING.splitlines())


def test_following_waits_for_the_whole_error_and_no_longer() -> None:
    log = Written(REFUSED)

    assert log.follow() is State.FAILED
    assert log.now < 20


def test_following_a_log_that_stops_ends_when_its_writer_does() -> None:
    assert Written(CUT).follow() is State.UNFINISHED


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08", bytes(range(9)) * 99, b"", b"nothing\n"])
def test_an_error_names_the_file(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.log"
    path.write_bytes(content)

    assert run(["diagnose", str(path)]) == 2
    assert run(["diagnose", "--follow", str(path)] if content.startswith(b"\x1f") else ["compare", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.count("odd.log") == 2


@pytest.mark.parametrize("name", ["", "x" * 300, "a\0b", "/dev/null/x"])
@pytest.mark.parametrize("command", [["diagnose"], ["diagnose", "--follow"]])
def test_names_that_no_log_has(name: str, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, name]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_pipe_that_nobody_writes_to_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="nobody writes"):
        open_stream(tmp_path / "pipe", wait=0.01)


def test_a_pipe_with_a_writer_is_read_and_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for command in (["diagnose"], ["diagnose", "--follow"]):
        writer = threading.Thread(target=pipe.write_text, args=(REFUSED, "utf-8"))
        writer.start()
        assert run([*command, str(pipe), "--offline"]) == 1
        writer.join()
    assert capsys.readouterr().out.count("FAILS") == 2


def test_what_is_followed_may_be_endless_and_no_text() -> None:
    assert run(["diagnose", "--follow", "/dev/zero"]) == 2


def test_sharing_replaces_nothing_but_a_file(refused: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, link, pipe = tmp_path / "target.md", tmp_path / "link.md", tmp_path / "pipe"
    target.write_text("old", "utf-8")
    target.chmod(0o640)
    link.symlink_to(target)
    os.mkfifo(pipe)

    assert run(["diagnose", refused, "--offline", "--share", str(link)]) == 1
    assert link.is_symlink()
    assert "<details>" in target.read_text("utf-8")
    assert target.stat().st_mode & 0o777 == 0o640
    assert run(["diagnose", refused, "--offline", "--share", str(pipe)]) == 2
    assert pipe.is_fifo()


def test_sharing_over_the_log_itself_is_refused(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", refused, "--offline", "--share", refused]) == 2
    assert "what was read" in capsys.readouterr().err
    assert Path(refused).read_text("utf-8") == REFUSED


def test_a_shared_file_has_the_rights_of_any_new_file(refused: str, tmp_path: Path) -> None:
    other = tmp_path / ("x" * 240 + ".md")
    (tmp_path / "plain").touch()

    run(["diagnose", refused, "--offline", "--share", str(other)])

    assert other.stat().st_mode == (tmp_path / "plain").stat().st_mode
