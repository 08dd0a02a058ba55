"""One build at a time in a folder, whoever runs it; the lock goes with its process, however that ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kvroom.errors import UsageError, short
from kvroom.files import reason

if sys.platform == "win32":
    import msvcrt
    import time

    def _take(file: IO[bytes], *, wait: bool) -> bool:
        while True:
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            except OSError:
                if not wait:
                    return False
                time.sleep(0.5)
            else:
                return True
else:
    import fcntl

    def _take(file: IO[bytes], *, wait: bool) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def locked(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold ``folder``, which is made if need be; ``waiting`` is called before waiting for another holder.

    Raises UsageError where the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("ab")
    except OSError as error:
        raise UsageError(
            f"The folder of engines, {short(str(folder))}, cannot be written: {reason(error)}.",
            "Set KVROOM_ENGINES to a folder of yours.",
        ) from None
    with file:
        try:
            if not _take(file, wait=False):
                waiting()
                _take(file, wait=True)
        except OSError as error:
            raise UsageError(
                f"The folder of engines, {short(str(folder))}, cannot be locked: {reason(error)}.",
                "Set KVROOM_ENGINES to a folder on a local disk.",
            ) from None
        yield
