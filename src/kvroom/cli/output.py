"""Writing answers: to a terminal, a pipe whose reader may go away, or a file that is written whole or not at all."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvroom.errors import UsageError, short

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


def write_file(name: str, text: str) -> None:
    """Write ``text`` to the file ``name``, whole or not at all; UsageError where that cannot be."""
    path = Path(name)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{short(name)} cannot be written: {error.strerror}.", "Give another file.") from None
