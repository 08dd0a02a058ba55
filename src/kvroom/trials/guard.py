"""The guard: starts a server in its own session and ends it, whatever becomes of kvroom.

It runs as a program of its own, ``python -I -S guard.py LIFELINE REPORT GRACE AFTERWARDS -- COMMAND...``, with
the standard library only. LIFELINE is the reading end of a pipe whose other end kvroom holds: when kvroom closes
it, or dies of anything, the server is stopped: SIGTERM to its first process, after GRACE seconds SIGKILL to all that
is left of its session. REPORT is a pipe that gets the server's process id. AFTERWARDS is a JSON list, a command to
run in the end, such as the removal of a container; empty for none. The exit code is the server's, 128 and
the signal's number where one ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TICK = 0.05
_NOWHERE = subprocess.DEVNULL
_KILL_FOR = 10.0
"""Seconds for which what is left is killed again and again."""


def main(words: list[str]) -> int:
    """Run and guard the command; its exit code."""
    lifeline, report, grace = int(words[0]), int(words[1]), float(words[2])
    afterwards, command = json.loads(words[3]), words[5:]
    asked: list[int] = []
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, lambda number, _: asked.append(number))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what the server leaves behind becomes ours to end
    server = os.fork()
    if server == 0:
        _become(command, (lifeline, report))
    os.write(report, f"{server}\n".encode())
    os.close(report)
    code = _watch(server, lifeline, asked)
    if code is None:
        code = _stop(server, grace)
    _end_session(server)
    if afterwards:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(afterwards, check=False, timeout=60, stdout=_NOWHERE, stderr=_NOWHERE)  # noqa: S603 - kvroom's own words
    return code


def _become(command: list[str], ends: tuple[int, int]) -> None:
    """Turn this process into the server; 127 where there is no such program."""
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # the guard itself may be killed
    for end in ends:
        os.close(end)
    try:
        os.execvp(command[0], command)  # noqa: S606 - what the user asked to launch
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127)


def _watch(server: int, lifeline: int, asked: list[int]) -> int | None:
    """The exit code of a server that ends by itself; None when it is to be stopped."""
    while not asked:
        code = _ended(server)
        if code is not None:
            return code
        with contextlib.suppress(InterruptedError):
            ready, _, _ = select.select([lifeline], [], [], _TICK)
            if ready and not os.read(lifeline, 1):
                return None
    return None


def _stop(server: int, grace: float) -> int:
    """Ask the server to end, and wait; its exit code."""
    _signal(server, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        code = _ended(server)
        if code is not None:
            return code
        time.sleep(_TICK)
    _signal_session(server, signal.SIGKILL)
    while True:
        code = _ended(server)
        if code is not None:
            return code
        time.sleep(_TICK)


def _end_session(server: int) -> None:
    """Kill what is left of the server's session, until nothing is."""
    deadline = time.monotonic() + _KILL_FOR
    while _signal_session(server, signal.SIGKILL) and time.monotonic() < deadline:
        _reap()
        time.sleep(_TICK)
    _reap()


def _ended(server: int) -> int | None:
    """The exit code of ``server``, None while it runs; other children that ended are taken note of."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if pid == 0:
            return None
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _signal_session(server: int, number: int) -> bool:
    """Signal every process of the server's session, whatever its group; False where none is left."""
    members = _members(server)
    for pid in members:
        _signal(pid, number)
    return bool(members)


def _members(session: int) -> list[int]:
    """The processes of ``session`` by ``/proc``; without that, its first group as one."""
    if not os.path.isdir("/proc/self"):  # noqa: PTH112 - pathlib takes longer to load than the guard to start
        try:
            os.killpg(session, 0)
        except OSError:
            return []
        return [-session]
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[3]) == session:
            found.append(int(name))
    return found


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the pipe has to do."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
