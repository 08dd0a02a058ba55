"""Reading a small file that may be anything: a directory, a pipe without an end, another encoding, a gigabyte."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


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


def too_large(most: int) -> OSError:
    """The error of a file with more than ``most`` bytes."""
    return OSError(errno.EFBIG, f"it has more than {most:,} bytes")


def reason(error: Exception) -> str:
    """Why a file could not be read, in a few words."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or "its name cannot be one"
