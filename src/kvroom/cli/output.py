"""Writing answers: to a terminal, a pipe whose reader may go away, or a file that is written whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvroom.errors import UsageError, short
from kvroom.files import reason

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 140
"""Columns of a table that goes to a file or another program."""
NARROWEST = 60
"""Columns of a table on a terminal that has fewer, or says so."""


def write(text: str) -> None:
    """Print ``text``; a reader that went away (``kvroom ... | head``) has read enough."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_json(data: Any) -> None:
    """Print ``data`` as JSON."""
    import json

    write(json.dumps(data, indent=1, allow_nan=False) + "\n")


def show(draw: Callable[[Console], None]) -> None:
    """Print what ``draw`` draws: as wide as the terminal, or wide enough for a pipe; no blanks end a line."""
    from rich.console import Console

    console = Console(highlight=False)
    width = max(console.width, NARROWEST) if console.is_terminal else PIPED_WIDTH
    console = Console(highlight=False, width=width)
    with console.capture() as printed:
        draw(console)
    write(re.sub(r" +$", "", printed.get(), flags=re.MULTILINE))


def write_file(name: str, text: str, *, not_over: Sequence[str] = ()) -> None:
    """Write ``text`` to the file ``name``, whole or not at all; UsageError where that cannot be.

    A device or a pipe is written into, and a link is followed: nothing but a file is ever replaced, and none of
    the files ``not_over``.
    """
    try:
        path = Path(name).resolve()
        if not name or any(Path(other).resolve() == path for other in not_over):
            raise OSError(errno.EEXIST, "that is what was read" if name else "the name is empty")
        mode = path.stat().st_mode if path.exists() else stat.S_IFREG
        if stat.S_ISREG(mode):
            _replace(path, text, stat.S_IMODE(mode))
        else:
            _write_into(path, text)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unwritable(name, error) from None


def refuse_unwritable(name: str) -> None:
    """UsageError where ``write_file`` could surely not write ``name``: asked before work that takes minutes."""
    try:
        path = Path(name).resolve()
        wrong = (
            errno.ENOENT if not name or not path.parent.exists()
            else errno.EISDIR if path.is_dir()
            else errno.EACCES if not os.access(path if path.exists() else path.parent, os.W_OK)
            else 0
        )  # fmt: skip
        if wrong:
            raise OSError(wrong, os.strerror(wrong))
    except (OSError, ValueError, RuntimeError) as error:
        raise _unwritable(name, error) from None


def _unwritable(name: str, error: Exception) -> UsageError:
    return UsageError(f"{short(name) or 'An empty name'} cannot be written: {reason(error)}.", "Give another file.")


def _replace(path: Path, text: str, mode: int) -> None:
    """A file in place of the one at ``path``, with the rights ``mode``, or those of a new file."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".kvroom-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(mode or 0o666 & ~mask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write_into(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe without a reader is an error
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
