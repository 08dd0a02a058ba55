"""Reading a file that may be anything: a directory, a pipe without an end, another encoding, a gigabyte."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_WRITER_COMES = 10.0
"""Seconds in which somebody must open the other end of a named pipe."""


def read_limited(path: Path, most: int) -> bytes:
    """The contents of the regular file ``path``.

    Raises OSError, with the reason as ``strerror``, for one that cannot be read, that is no regular file,
    or that has more than ``most`` bytes; it never waits for a writer.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        data = file.read(most + 1) or b""  # None where nothing is there yet
    if len(data) > most:
        raise too_large(most)
    return data


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def open_stream(path: Path, wait: float = _WRITER_COMES) -> BinaryIO:
    """``path`` opened to be read to its end, a pipe or a device as well.

    Raises OSError, with the reason as ``strerror``; of a named pipe also where nobody comes to write into it.
    """
    try:
        kind = path.stat().st_mode
    except ValueError:
        raise OSError(errno.EINVAL, "its name cannot be one") from None
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISFIFO(kind):
        return path.open("rb")
    return open(_opened_pipe(path, wait), "rb")


def _opened_pipe(path: Path, wait: float) -> int:
    """A descriptor of the named pipe: opening one waits for its writer, so that another thread does it."""
    import threading

    opened: list[int] = []

    def open_it() -> None:
        with contextlib.suppress(OSError):
            opened.append(os.open(path, os.O_RDONLY))

    thread = threading.Thread(target=open_it, daemon=True)
    thread.start()
    thread.join(wait)
    if thread.is_alive():
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))  # lets it go
        thread.join()
        os.close(opened[0])
        raise OSError(errno.EPIPE, "it is a pipe, and nobody writes to it")
    if not opened:
        raise OSError(errno.EACCES, "it is a pipe that may not be read")
    return opened[0]


def too_large(most: int) -> OSError:
    """The error of a file with more than ``most`` bytes."""
    return OSError(errno.EFBIG, f"it has more than {most:,} bytes")


def reason(error: Exception) -> str:
    """Why a file could not be read, in a few words."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or "its name cannot be one"
