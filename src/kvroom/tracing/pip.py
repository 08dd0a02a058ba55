"""The programs that building needs, ``python -m venv`` and pip, behind a protocol; pip's own settings hold."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Protocol

from kvroom.errors import InstallError
from kvroom.files import reason
from kvroom.tracing.keep import interpreter, size_of

_CLEARED = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN", "PIP_REPORT")
"""What would lead pip away from the new environment."""
_SET = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_USER": "0",
    "PIP_QUIET": "0",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "utf-8",
}
_TOLD = ("Downloading ", "Using cached ", "Building wheel", "Installing collected packages")
"""How the lines of pip begin that are worth showing."""
_POLL_S = 1.0
_END_S = 10.0
_VERSION = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; "  # the current folder may be a clone of vLLM
    "import vllm; print('vllm-version', vllm.__version__)"
)


class Progress(Protocol):
    """Who is told how a build goes on."""

    def step(self, text: str) -> None:
        """The next step begins."""

    def detail(self, text: str) -> None:
        """What is done within the step."""

    def amount(self, n_bytes: int) -> None:
        """Bytes that the current download has so far."""


class PipFailed(Exception):
    """Pip ended with an error; ``lines`` are what it printed."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines[-1:]))
        self.lines = lines


class Tools(Protocol):
    """The programs."""

    def environment(self, folder: Path) -> None:
        """Make a virtual environment with pip in the empty ``folder``; PipFailed where that fails."""

    def pip(self, python: Path, arguments: Sequence[str], scratch: Path, said: Progress) -> None:
        """Run pip, with its temporary files in ``scratch``; PipFailed where it fails."""

    def imported(self, python: Path, paths: Sequence[Path]) -> str:
        """The version of vLLM that is imported with ``paths`` on PYTHONPATH; InstallError where that fails."""


class RealTools:
    """The programs themselves."""

    def environment(self, folder: Path) -> None:
        """As the protocol says."""
        if not sys.executable:
            raise InstallError("This Python does not know its own program.", "Run kvroom from a virtual environment.")
        lines = _run([sys.executable, "-m", "venv", str(folder)], _settings(), lambda _: None, lambda: None)
        if lines is not None or not interpreter(folder).exists():
            raise PipFailed(lines or [f"{sys.executable} -m venv made no interpreter."])

    def pip(self, python: Path, arguments: Sequence[str], scratch: Path, said: Progress) -> None:
        """As the protocol says."""
        scratch.mkdir(parents=True, exist_ok=True)
        settings = _settings() | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))

        downloading = False

        def line(text: str) -> None:
            nonlocal downloading
            downloading = text.startswith("Downloading ")
            if text.startswith(_TOLD):
                said.detail(text)

        def tick() -> None:
            if downloading:
                said.amount(size_of(scratch))

        lines = _run([str(python), "-m", "pip", *arguments], settings, line, tick)
        if lines is not None:
            raise PipFailed(lines)

    def imported(self, python: Path, paths: Sequence[Path]) -> str:
        """As the protocol says."""
        lines: list[str] = []
        settings = _settings() | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "VLLM_NO_USAGE_STATS": "1"}
        failed = _run([str(python), "-c", _VERSION], settings, lines.append, lambda: None)
        answers = [line for line in lines if line.startswith("vllm-version")]
        if failed is not None or not answers:
            last = next((line for line in reversed(failed or lines) if line.strip()), "it printed nothing")
            raise InstallError(f"vLLM's Python code does not import: {last}", "Please report it with this message.")
        return answers[-1].removeprefix("vllm-version").strip()


def _settings() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _CLEARED}
    return kept | _SET


def _run(
    command: list[str], env: dict[str, str], line: Callable[[str], None], tick: Callable[[], None]
) -> list[str] | None:
    """Run a program: None when it succeeds, else its last lines. It ends with this call, however that ends."""
    try:
        process = subprocess.Popen(  # noqa: S603 - a Python and pip's own arguments
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,  # so that it can be ended with what it started
        )
    except OSError as error:
        raise InstallError(f"{command[0]} cannot be run: {reason(error)}.", "Is it still there?") from None
    assert process.stdout is not None
    printed: queue.Queue[bytes | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process.stdout, printed), daemon=True)
    reader.start()
    last: list[str] = []
    try:
        while True:
            try:
                got = printed.get(timeout=_POLL_S)
            except queue.Empty:
                tick()
                continue
            if got is None:
                break
            text = got.decode("utf-8", "replace").strip()
            if text:
                last = [*last[-200:], text]
                line(text)
        return None if process.wait() == 0 else last
    finally:
        _end(process)
        reader.join(_END_S)


def _read(stream: IO[bytes], printed: queue.Queue[bytes | None]) -> None:
    with stream:
        for line in stream:
            printed.put(line)
    printed.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program, and what it started: it writes into folders that are about to go."""
    if process.poll() is not None:
        return
    _signal(process, "SIGTERM")
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _signal(process, "SIGKILL")


def _signal(process: subprocess.Popen[bytes], name: str) -> None:
    if sys.platform == "win32":
        process.terminate()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.Signals[name])
