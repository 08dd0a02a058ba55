"""A server that runs under the guard: started, watched until it serves, stopped, with nothing left behind.

An edge module: processes, ports and files.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from kvroom.errors import UsageError
from kvroom.logs.reading import Reading
from kvroom.trials.memory import Memory

GRACE = 20.0
"""Seconds that a server has to end by itself."""
_TICK = 0.5
_SOON = 5.0
"""Seconds in which a start may be over sooner than a tick."""
_LOOK = 2.0
"""Seconds between two readings of the log."""
_GUARD = Path(__file__).with_name("guard.py")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that can be found again: its id may have gone to another one meanwhile."""

    pid: int
    started: int | None
    """When it started, in the kernel's ticks; None where that cannot be told."""

    def alive(self) -> bool:
        """Whether it still runs; False where that cannot be told."""
        return self.started is not None and started_at(self.pid) == self.started


def started_at(pid: int) -> int | None:
    """When process ``pid`` started, in ticks since the system did; None where there is none, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return None if fields[0] == "Z" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Raise UsageError where somebody listens on ``port`` already."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=2):
        raise UsageError(
            f"Port {port} is taken: another program answers there.", "Stop it, or give the command another --port."
        )


class Server:
    """One server under the guard; ``with`` it, so that it ends whatever happens."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], log: Path, afterwards: Sequence[str] = ()
    ) -> None:
        self._command = command
        self._env = env
        self.log = log
        self._afterwards = afterwards
        self._lifeline = -1
        self._guard: subprocess.Popen[bytes] | None = None
        self.session = 0

    def __enter__(self) -> Self:
        """Start it. Raises UsageError where the guard itself cannot be started."""
        listening, self._lifeline = os.pipe()
        told, telling = os.pipe()
        words = [sys.executable, "-I", "-S", str(_GUARD), str(listening), str(telling), str(GRACE)]
        words += [json.dumps(list(self._afterwards)), "--", *self._command]
        try:
            with self.log.open("ab") as output:
                self._guard = subprocess.Popen(  # noqa: S603 - the command that the user gave
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=dict(self._env),
                    pass_fds=(listening, telling),
                    start_new_session=True,  # Ctrl-C is for kvroom, which then stops the server
                )
        except OSError as error:
            self._close()
            os.close(told)
            raise UsageError(f"The server cannot be started: {error.strerror}.", str(self.log)) from None
        finally:
            os.close(listening)
            os.close(telling)
        with os.fdopen(told, "rb") as report:
            line = report.readline()
        self.session = int(line) if line.strip().isdigit() else 0
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop it."""
        self.stop()

    def processes(self) -> tuple[Process, ...]:
        """The guard and the server, to be found again by a later kvroom."""
        pids = [self._guard.pid if self._guard else 0, self.session]
        return tuple(Process(pid, started_at(pid)) for pid in pids if pid)

    def exit_code(self) -> int | None:
        """The server's exit code, None while it runs."""
        return self._guard.poll() if self._guard else None

    def stop(self) -> int | None:
        """End it and wait until it has; its exit code."""
        self._close()
        if self._guard is None:
            return None
        try:
            return self._guard.wait(GRACE + 90)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.session or self._guard.pid, signal.SIGKILL)
            self._guard.kill()
            return self._guard.wait()

    def _close(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def wait_until_ready(
    server: Server, url: str, timeout: float, memory: Memory, on_stage: Callable[[str], None]
) -> float | None:
    """Seconds until ``server`` answers at ``url``; None where it ended or took longer than ``timeout``.

    ``on_stage`` is told the stage of the start as the log shows it.
    """
    begun = time.monotonic()
    looked, size, stage = begun, -1, ""
    while time.monotonic() - begun < timeout:
        if server.exit_code() is not None:
            return None
        memory.sample(server.session)
        if healthy(url):
            return time.monotonic() - begun
        if time.monotonic() - looked > _LOOK and (grown := server.log.stat().st_size) != size:
            looked, size = time.monotonic(), grown
            reading = read_start(server.log)
            if reading is not None and reading.stage != stage:
                stage = reading.stage
                on_stage(stage)
        time.sleep(_TICK if time.monotonic() - begun > _SOON else _TICK / 10)
    return None


def read_start(log: Path) -> Reading | None:
    """The last start in ``log``, None where nothing of vLLM is in it."""
    from kvroom.logs.read import read_log

    try:
        with log.open("rb") as stream:
            found = read_log(stream)
    except (OSError, UsageError):
        return None
    return None if found.empty or not found.readings else found.readings[0]


def healthy(url: str) -> bool:
    """Whether the server at ``url`` says that it is well."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, ValueError, HTTPException):
        return False
    finally:
        connection.close()


def end_orphans(processes: Sequence[Process]) -> int:
    """Stop what a kvroom that died left running; how many processes there were."""
    left = [process for process in processes if process.alive()]
    for process in left[:1]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE + 15
    while any(process.alive() for process in left) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in left:
        if process.alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return len(left)
