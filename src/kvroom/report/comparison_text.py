"""A comparison as text for a terminal, and as Markdown to paste into an issue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kvroom.compare.comparison import Comparison, FigureRow, SettingRow
from kvroom.compare.names import show_figure, show_value
from kvroom.compare.side import Figure, Setting, Side
from kvroom.redaction import clean
from kvroom.report.terminal import Part, line, print_parts, prose

if TYPE_CHECKING:
    from rich.console import Console

_UNKNOWN = "unknown"
_LONGEST = 400
_Row = tuple[str, ...]


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print ``comparison``: the sentence first, then what differs, the ledger and the pool."""
    print_parts(_parts(comparison), console)


def _parts(comparison: Comparison) -> Iterator[Part]:
    yield prose("", _line(comparison.sentence), "bold")
    yield line("")
    for about in _sides(comparison):
        yield line(about)
    for title, head, rows in _sections(comparison):
        yield line(f"\n{title}", "bold")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for number, name in enumerate(head):
            numbers = title != "Settings that differ" and number > 0
            table.add_column(name, justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            marked = len(row) > 3 and row[-1].endswith("*")
            table.add_row(*(Text(cell) for cell in row), style="bold" if marked else "")
        yield table
    for note in _notes(comparison):
        yield prose("", note, "dim")


def comparison_markdown(comparison: Comparison) -> str:
    """``comparison`` as GitHub Markdown: the sentence, and tables that fold."""
    parts = [_cell(_line(comparison.sentence)), ""]
    parts += [f"- {_cell(line)}" for line in _sides(comparison)]
    for title, head, rows in _sections(comparison):
        parts += ["", f"<details open>\n<summary>{title}</summary>\n"]
        align = ["---"] + (["---"] if title == "Settings that differ" else ["---:"]) * (len(head) - 1)
        parts += [_markdown_row(head), _markdown_row(align)]
        parts += [_markdown_row([_cell(cell) for cell in row]) for row in rows]
        parts += ["", "</details>"]
    notes = [f"- {_cell(line)}" for line in _notes(comparison)]
    return "\n".join([*parts, *(["", *notes] if notes else [])])


def _sections(comparison: Comparison) -> Iterator[tuple[str, _Row, list[_Row]]]:
    differing = [row for row in comparison.settings if row.differs]
    if differing:
        rows: list[_Row] = [(row.name, _setting(row, row.good), _setting(row, row.bad)) for row in differing]
        yield "Settings that differ", ("setting", "good", "bad"), rows
    if comparison.ledger:
        yield "Ledger, per GPU", ("entry", "good", "bad", "difference"), _figures(comparison.ledger)
    if comparison.pool:
        yield "KV pool", ("", "good", "bad", "difference"), _figures(comparison.pool)


def _sides(comparison: Comparison) -> Iterator[str]:
    for name, side in (("good", comparison.good), ("bad", comparison.bad)):
        yield _line(f"{name:<5} {_about(side)}")
        if side.error:
            where = f" (line {side.error_line})" if side.error_line else ""
            yield _line(f"      {side.error}{where}")


def _about(side: Side) -> str:
    said = [side.label]
    version = side.value("version")
    said.append(f"vLLM {version}" if version else "vLLM's version is unknown")
    said += [str(side.value(name)) for name in ("model", "device") if side.value(name)]
    at = f" at stage {side.stage}" if side.stage and (side.failed or side.state == "unfinished") else ""
    return ", ".join(said) + f": {side.state}{at}"


def _setting(row: SettingRow, setting: Setting | None) -> str:
    if setting is None:
        return _UNKNOWN
    shown = show_value(row.name, setting.value)
    return _line(f"{shown} (default)" if setting.default else shown)


def _figures(rows: Sequence[FigureRow]) -> list[_Row]:
    return [
        (
            row.name,
            _figure(row.name, row.good),
            _figure(row.name, row.bad),
            "" if row.difference is None else _difference(row),
        )
        for row in rows
    ]


def _figure(name: str, figure: Figure | None) -> str:
    if figure is None:
        return _UNKNOWN
    shown = show_figure(name, figure.value)
    return f"~ {shown}" if figure.basis == "predicted" else shown


def _difference(row: FigureRow) -> str:
    shown = show_figure(row.name, row.difference or 0, signed=True)
    return f"{shown} *" if row.moved else shown


def _notes(comparison: Comparison) -> Iterator[str]:
    alone = [row.name for row in comparison.settings if row.good is None or row.bad is None]
    if alone:
        shown = ", ".join(alone[:12]) + (f" and {len(alone) - 12} more" if len(alone) > 12 else "")
        yield _line(f"shown by one side only: {shown}")
    if any(row.moved for row in (*comparison.ledger, *comparison.pool)):
        yield "* more than run-to-run noise"
    rows = (*comparison.ledger, *comparison.pool)
    if any(figure is not None and figure.basis == "predicted" for row in rows for figure in (row.good, row.bad)):
        yield "~ predicted"
    both = [note for note in comparison.good.notes if note in comparison.bad.notes]
    for name, notes in (("both", both), ("good", comparison.good.notes), ("bad", comparison.bad.notes)):
        for note in dict.fromkeys(notes):
            if name == "both" or note not in both:
                yield _line(f"note on {name}: {note}")


def _line(text: str) -> str:
    """``text`` on one line, not too long, without secrets and control codes."""
    text = " ".join(clean(text).split()) if "\n" in text or "\t" in text else clean(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _cell(text: str) -> str:
    """``text`` inside Markdown: nothing in it is taken for a table, a tag, a link or a mention."""
    text = re.sub(r"([\\`*_\[\]|~#])", r"\\\1", escape(text, quote=False))
    return text.replace("@", "@\u2060")


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
