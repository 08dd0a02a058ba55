"""Logs as the command line names them: files, the standard input, a file that is still being written."""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from kvroom.doctor.diagnose import diagnose_log, open_log
from kvroom.doctor.diagnosis import Diagnosis
from kvroom.doctor.ticket import Ticket
from kvroom.errors import UsageError, short
from kvroom.files import open_stream, reason
from kvroom.logs.read import Log
from kvroom.logs.reading import State

_SETTLES = 2.0
"""Seconds without a new line after an error until the log is taken as complete."""
_EVERY = 0.5
_SHARE = 3
"""How many times as long as a reading took is waited for the next one."""
_PART = 1 << 16


def diagnoses_of(
    logs: Sequence[str], said: Mapping[str, Any], env: Mapping[str, str], *, every: bool, follow: bool
) -> list[Diagnosis]:
    """The diagnoses of the last start, or every start, of each of ``logs`` (none: the standard input)."""
    names = list(logs) or ["-"]
    if names == ["-"] and not logs and sys.stdin.isatty():
        raise UsageError("No log is named.", "Give a file, or pipe one in: docker logs vllm 2>&1 | kvroom diagnose -")
    if follow and len(names) > 1:
        raise UsageError("--follow follows one log.", "Name one file, or `-`.")
    ticket = Ticket(env=env, **said)
    found: list[Diagnosis] = []
    for name in names:
        log = _followed(name) if follow else _read(name)
        diagnoses = diagnose_log(log, ticket, "" if name == "-" else name)
        found += diagnoses if every else diagnoses[:1]
    return found


def _read(name: str) -> Log:
    return open_log(sys.stdin.buffer if name == "-" else _path(name))


def _path(name: str) -> Path:
    if not name:
        raise UsageError("The name of a log is empty.", "Give the path of a log, or `-` for the standard input.")
    return Path(name)


def _followed(name: str) -> Log:
    """The log ``name`` once its start is decided, or its writer is done."""
    if name == "-":
        return _followed_stream(sys.stdin.buffer, "The standard input")
    path = _path(name)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            with open_stream(path) as stream:
                return _followed_stream(stream, short(name))
        return follow_log(lambda: open_log(path), lambda: path.stat().st_size, time.monotonic, time.sleep)
    except (OSError, ValueError) as error:
        raise UsageError(f"{short(name)} cannot be read: {reason(error)}.", "Give the path of a log.") from None


def _followed_stream(stream: BinaryIO, name: str) -> Log:
    """What ``stream`` brings, copied to a file that can be read again as it grows."""
    import tempfile
    import threading

    source = getattr(stream, "raw", stream)  # a thread that waits in a buffer would hold its lock at the end
    done = threading.Event()
    problem: list[OSError] = []
    with tempfile.TemporaryDirectory(prefix="kvroom-") as folder:
        path = Path(folder) / "log"
        spool = path.open("wb", buffering=0)

        def copy() -> None:
            try:
                with spool:
                    while part := source.read(_PART):
                        spool.write(part)
            except OSError as error:
                problem.append(error)
            except ValueError:  # closed by who asked: the answer is there
                pass
            done.set()

        threading.Thread(target=copy, daemon=True).start()
        try:
            log = follow_log(
                lambda: open_log(path), lambda: path.stat().st_size, time.monotonic, time.sleep, done.is_set
            )
        except UsageError as error:
            raise UsageError(error.problem.replace(str(path), name), error.cure) from None
    if problem:
        raise UsageError(f"{name} cannot be followed: {reason(problem[0])}.", "Give a file instead.")
    return log


def follow_log(
    read: Callable[[], Log],
    size: Callable[[], int],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    ended: Callable[[], bool] = lambda: False,
) -> Log:
    """The log that ``read`` gives, as soon as its start is decided: it serves, or it failed and says no more.

    ``size`` tells whether it grew, ``clock`` seconds, and ``ended`` whether nothing more will come.
    """
    seen, since = -1, clock()
    log: Log | None = None
    while True:
        over = ended()
        now, took = size(), 0.0
        if now != seen:
            seen, since = now, clock()
            log = read() if now else None
            took = clock() - since
        state = log.readings[0].state if log and log.readings else State.UNFINISHED
        quiet = clock() - since >= _SETTLES
        if log is not None and (over or state is State.SERVING or (state is not State.UNFINISHED and quiet)):
            return log
        if over:
            return read()
        sleep(max(_EVERY, _SHARE * took))
