"""What every text for a terminal is made of: lines that stay whole, prose that wraps, tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kvroom.ledger.verdict import Status
from kvroom.redaction import clean

if TYPE_CHECKING:
    from rich.console import Console

COLOUR = {Status.FITS: "green", Status.TIGHT: "yellow", Status.FAILS: "red", Status.UNKNOWN: "magenta"}
_NARROWEST = 30


@dataclass(frozen=True, slots=True)
class Prose:
    """Sentences behind ``lead``: on a terminal what does not fit the line goes on below their beginning."""

    lead: str
    text: Text


Part = Text | Table | Prose


def line(text: str, style: str = "") -> Text:
    """``text`` for a terminal: whoever wrote a part of it, it holds no secret and no control code.

    It stays one line, however long, to be copied: a command, or what a log holds.
    """
    return Text(clean(text), style=style)


def prose(lead: str, text: str, style: str = "") -> Prose:
    """``text`` behind ``lead``, cleaned in the same way."""
    return Prose(lead, line(text, style))


def place(source: str, number: int | None) -> str:
    r"""A line of a file, on one line whatever the file is called.

    >>> print(place("odd\nname.sh", 3))
    odd\nname.sh:3
    """
    return f"{source.encode('unicode_escape').decode() if not source.isprintable() else source}:{number or 1}"


def print_parts(parts: Iterable[Part], console: Console) -> None:
    """Print ``parts``; only on a terminal prose is wrapped, since other programs take a line as one."""
    for part in parts:
        if isinstance(part, Prose):
            _print_prose(part, console)
        else:
            console.print(part, soft_wrap=not isinstance(part, Table))


def _print_prose(part: Prose, console: Console) -> None:
    width = max(console.width - len(part.lead), _NARROWEST)
    lead = part.lead
    for row in part.text.wrap(console, width) if console.is_terminal else [part.text]:
        console.print(Text(lead, style=row.style) + row, soft_wrap=True)
        lead = " " * len(lead)
