"""The real programs, as far as they need no index."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from tests.tracing.fakes import Silent

from kvroom.errors import InstallError
from kvroom.tracing.keep import interpreter
from kvroom.tracing.pip import PipFailed, RealTools


def _stub(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def _runs(process: int) -> bool:
    """Whether a process is there, and no zombie that nobody has asked about."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_environment_has_pip(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    RealTools().environment(tmp_path / "base")
    RealTools().pip(interpreter(tmp_path / "base"), ["--version"], tmp_path / "tmp", Silent())
    with pytest.raises(PipFailed) as failed:
        RealTools().pip(interpreter(tmp_path / "base"), ["nothing"], tmp_path / "tmp", Silent())
    assert any("unknown command" in line for line in failed.value.lines)


def test_pip_is_led_nowhere_else_and_its_downloads_are_told(tmp_path: Path) -> None:
    python = _stub(
        tmp_path / "python",
        'echo "$PYTHONPATH|$PIP_USER|$TMPDIR" > "$TMPDIR/seen"\n'
        'echo "Downloading torch.whl (198 MB)"; echo "noise"; head -c 3000000 /dev/zero > "$TMPDIR/part"\n'
        'echo "Downloading numpy.whl (18 MB)"; sleep 1.5; exit 0',
    )
    amounts: list[int] = []
    said = Silent()
    said.amount = amounts.append  # type: ignore[method-assign]
    RealTools().pip(python, ["install", "x"], tmp_path / "tmp", said)
    assert (tmp_path / "tmp" / "seen").read_text() == f"|0|{tmp_path / 'tmp'}\n"
    assert said.lines == ["Downloading torch.whl (198 MB)", "Downloading numpy.whl (18 MB)"]
    assert amounts
    assert amounts[0] >= 3_000_000


def test_a_program_and_what_it_started_end_with_the_call(tmp_path: Path) -> None:
    python = _stub(tmp_path / "python", f'sleep 60 & echo $! > "{tmp_path}/id"; echo "Downloading x (1 MB)"; wait')

    class Interrupts(Silent):
        def detail(self, text: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RealTools().pip(python, ["install"], tmp_path / "tmp", Interrupts())
    process = int((tmp_path / "id").read_text())
    deadline = time.monotonic() + 10
    while _runs(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(process)


def test_what_is_imported(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("print('noise')\n__version__ = '0.28.0'\n")
    assert RealTools().imported(Path(sys.executable), [tmp_path]) == "0.28.0"
    (tmp_path / "vllm" / "__init__.py").write_text("raise ImportError('no torch')\n")
    with pytest.raises(InstallError, match="no torch"):
        RealTools().imported(Path(sys.executable), [tmp_path])
    with pytest.raises(InstallError, match="cannot be run"):
        RealTools().imported(tmp_path / "none", [tmp_path])
