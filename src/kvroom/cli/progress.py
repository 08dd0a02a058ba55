"""How a long job goes on, on standard error: a moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kvroom.errors import short
from kvroom.redaction import clean

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_QUIET_S = 15.0
"""How often a plain line says how far a download is."""
_LINE = 160
_MOVING = 100
"""Characters of a line, and of one that moves."""


class Moving:
    """A line that moves on a terminal, while the job lasts; ``_bar`` is None elsewhere."""

    _bar: Bar | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
            self._bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
            self._bar.start()
            self._bar.add_task("")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


class Steps(Moving):
    """Shows the steps of a job; ``steps`` is how many are to come."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._step = 0
        self._text = ""
        self._shown = time.monotonic()

    def step(self, text: str) -> None:
        """The next step begins."""
        self._step += 1
        self._text = ""
        self._line(f"[{self._step}/{max(self._steps, self._step)}] {text}")

    def detail(self, text: str) -> None:
        """What is done within the step; a package of less than a megabyte is not worth a line."""
        if self._bar is not None:
            self._text = text
            self._move(text)
        elif " kB)" not in text:
            self._line(f"  {text}")

    def amount(self, n_bytes: int) -> None:
        """Bytes that the current download has so far."""
        so_far = f"{n_bytes / 1e6:,.0f} MB so far"
        if n_bytes < 1e6:
            return
        if self._bar is not None:
            self._move(f"{self._text}: {so_far}")
        elif time.monotonic() - self._shown > _QUIET_S:
            self._line(f"  {so_far}")

    def _line(self, text: str) -> None:
        self._shown = time.monotonic()
        text = short(clean(text), _LINE)
        if self._bar is not None:
            self._bar.console.print(text, markup=False)
            self._move("")
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _move(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=short(clean(text), _MOVING))


@contextmanager
def ends_on_terminate() -> Iterator[None]:
    """While it holds, SIGTERM ends the command as Ctrl-C does, so that nothing half-built stays."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
