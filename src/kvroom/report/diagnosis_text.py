"""A diagnosis as text for a terminal: what happened and why first, then what to change, then the figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kvroom.doctor.diagnosis import Diagnosis
from kvroom.doctor.price import Offer
from kvroom.doctor.words import headline, identity, pool_lines, room_after, serving_lines
from kvroom.ledger.verdict import Status
from kvroom.redaction import clean
from kvroom.report.command import show_command
from kvroom.units import GIB

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_COLOUR = {Status.FITS: "green", Status.FAILS: "red", Status.UNKNOWN: "magenta", Status.TIGHT: "yellow"}
_LEDGER = ("total", "free", "requested", "weights", "consumed", "activation", "other", "graph_estimate", "available")
_MOST_OFFERS = 6


def print_diagnosis(diagnosis: Diagnosis, console: Console, *, explain: bool = False) -> None:
    """Print ``diagnosis``; with ``explain`` the timeline, the settings and every line that was recognised too."""
    for part in _parts(diagnosis, explain):
        console.print(part, soft_wrap=not isinstance(part, Table))


def _parts(diagnosis: Diagnosis, explain: bool) -> Iterator[RenderableType]:
    reading = diagnosis.reading
    if diagnosis.source:
        yield _text(f"{diagnosis.source}:{reading.first_line}", "dim")
    yield _text(identity(diagnosis), "bold")
    colour = _COLOUR[diagnosis.verdict.status]
    yield Text.assemble((diagnosis.verdict.status.upper(), f"bold {colour}"), "  ", _text(headline(diagnosis)))
    if reading.error is not None:
        yield _text(f"  line {reading.error.line}: {reading.error.text[:1000]}")
    yield from _findings(diagnosis)
    yield from _offers(diagnosis)
    table = _ledger(diagnosis)
    if table is not None:
        yield _text("\nLedger", "bold")
        yield table
    for title, lines in (("KV pool", pool_lines(reading)), ("Serving", serving_lines(reading))):
        if lines:
            yield _text(f"\n{title}", "bold")
        for line in lines:
            yield _text(f"  {line}")
    if reading.contradictions:
        yield _text("\nThe log contradicts itself", "bold")
    for line in reading.contradictions:
        yield _text(f"  {line}")
    if diagnosis.command and diagnosis.verdict.status is Status.FAILS:
        yield _text("\nCommand to try", "bold")
        yield _text(f"  {show_command(diagnosis.command)}")
    if explain:
        yield from _explained(diagnosis)
    if diagnosis.known.notes:
        yield _text("")
    for note in diagnosis.known.notes:
        yield _text(f"note: {note}", "dim")


def _text(text: str, style: str = "") -> Text:
    """``text`` for a terminal: whoever wrote a part of it, it holds no secret and no control code."""
    return Text(clean(text), style=style)


def _findings(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    if diagnosis.findings:
        yield _text("\nWhat it means", "bold")
    for finding in diagnosis.findings:
        yield _text(f"  {finding.severity} {finding.code} {finding.name}: {finding.title}")
        if finding.why != finding.title:
            yield _text(f"     {finding.why}")
        for item in finding.evidence[:3]:
            where = f"line {item.line}: " if item.line else ""
            yield _text(f"     {where}{item.text[:200]}", "dim")


def _offers(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    if diagnosis.offers:
        yield _text("\nWhat to change, one at a time", "bold")
    for number, offer in enumerate(diagnosis.offers[:_MOST_OFFERS], 1):
        yield _text(f"  {number}. {_offer_line(offer)}")
        price = f"price: {offer.price}" if offer.price else ""
        why = offer.why if offer.flags or offer.name else ""
        yield _text(f"     {'; '.join(filter(None, (why, price)))}", "dim")


def _offer_line(offer: Offer) -> str:
    change = show_command(offer.flags) if offer.flags else offer.name or offer.why
    return f"{change}{room_after(offer)}"


def _ledger(diagnosis: Diagnosis) -> Table | None:
    reading = diagnosis.reading
    known = [name for name in _LEDGER if name in reading.measured]
    if not known:
        return None
    predicted = {each.entry: each for each in diagnosis.held}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("GiB per GPU")
    for name in ("logged", "predicted", "difference", "line"):
        table.add_column(name, justify="right")
    table.add_column("ranks")
    for name in known:
        entry = reading.measured[name]
        each = predicted.get("cuda_graphs" if name == "graph_estimate" else name)
        figures = ("", "")
        if each is not None:
            mark = " outside" if each.outside else ""
            figures = (f"{each.expected / GIB:.2f}", f"{(each.logged - each.expected) / GIB:+.2f}{mark}")
        spread = f"{entry.low / GIB:.2f} to {entry.high / GIB:.2f}" if entry.low != entry.high else ""
        table.add_row(f"  {name}", f"{entry.value / GIB:.2f}", *figures, str(entry.line), spread)
    return table


def _explained(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    reading = diagnosis.reading
    yield _text("\nTimeline", "bold")
    for step in reading.timeline:
        lasted = f", {step.seconds:.1f} s" if step.seconds is not None else ""
        yield _text(f"  {step.at:8.1f} s  {step.stage} (line {step.line}{lasted})")
    yield _text("\nSettings that the log shows", "bold")
    for name, value in sorted(reading.settings.items()):
        yield _text(f"  {name}: {str(value)[:200]}")
    yield _text("\nLines that were recognised", "bold")
    for fact in reading.facts:
        yield _text(f"  {fact.line}: {fact.id}: {fact.text[:160]}", "dim")
