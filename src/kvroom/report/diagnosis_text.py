"""A diagnosis as text for a terminal: what happened and why first, then what to change, then the figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kvroom.doctor.diagnosis import Diagnosis
from kvroom.doctor.words import headline, identity, pool_lines, room_after, serving_lines
from kvroom.findings.finding import Finding
from kvroom.ledger.verdict import Status
from kvroom.report.command import show_command
from kvroom.report.terminal import COLOUR, Part, line, place, print_parts, prose
from kvroom.units import GIB

if TYPE_CHECKING:
    from rich.console import Console

_LEDGER = ("total", "free", "requested", "weights", "consumed", "activation", "other", "graph_estimate", "available")
_MOST_OFFERS = 6
_COLUMNS = ("GiB per GPU", "logged", "predicted", "difference", "line", "ranks")
_LEFT = {"GiB per GPU", "ranks"}
_SAME = 100
"""Beginnings of this length tell one error from another."""


def print_diagnosis(diagnosis: Diagnosis, console: Console, *, explain: bool = False) -> None:
    """Print ``diagnosis``; with ``explain`` the timeline, the settings and every line that was recognised too."""
    print_parts(_parts(diagnosis, explain), console)


def _parts(diagnosis: Diagnosis, explain: bool) -> Iterator[Part]:
    reading = diagnosis.reading
    if diagnosis.source:
        yield line(place(diagnosis.source, reading.first_line), "dim")
    yield prose("", identity(diagnosis), "bold")
    status = diagnosis.verdict.status
    yield Text.assemble((status.upper(), f"bold {COLOUR[status]}"), "  ", line(headline(diagnosis)))
    if reading.error is not None:
        yield line(f"  line {reading.error.line}: {reading.error.text.strip()[:1000]}")
    yield from _findings(diagnosis)
    yield from _offers(diagnosis)
    yield from _command(diagnosis)
    table = _ledger(diagnosis)
    if table is not None:
        yield line("\nLedger", "bold")
        yield table
    for title, lines in (
        ("KV pool", pool_lines(reading)),
        ("Serving", serving_lines(reading)),
        ("The log contradicts itself", reading.contradictions),
    ):
        if lines:
            yield line(f"\n{title}", "bold")
        for said in lines:
            yield prose("  ", said)
    if explain:
        yield from _explained(diagnosis)
    if diagnosis.known.notes:
        yield line("")
    for note in diagnosis.known.notes:
        yield prose("note: ", note, "dim")


def _findings(diagnosis: Diagnosis) -> Iterator[Part]:
    if diagnosis.findings:
        yield line("\nWhat it means", "bold")
    for finding in diagnosis.findings:
        yield prose(f"  {finding.severity} ", f"{finding.code} {finding.name}: {finding.title}")
        if finding.why != finding.title:
            yield prose("     ", finding.why)
        for where, text in _evidence(finding, diagnosis):
            yield line(f"     {where}{text}", "dim")


def _evidence(finding: Finding, diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """Where the evidence stands and its text, without the error that is printed above already."""
    error = diagnosis.reading.error
    for item in finding.evidence[:3]:
        text = item.text.strip()
        if error is None or text[:_SAME] != error.text.strip()[:_SAME]:
            yield (f"line {item.line}: " if item.line else "", text[:200])


def _offers(diagnosis: Diagnosis) -> Iterator[Part]:
    if diagnosis.offers:
        yield line("\nWhat to change, one at a time", "bold")
    titles = {finding.title for finding in diagnosis.findings}
    for number, offer in enumerate(diagnosis.offers[:_MOST_OFFERS], 1):
        change = show_command(offer.flags) if offer.flags else offer.name or offer.why
        if offer.why in titles:  # a finding's own words, which stand above
            remark = f" ({offer.price})" if offer.price else ""
            yield prose(f"  {number}. ", f"{change}{remark}{room_after(offer.after)}")
            continue
        yield prose(f"  {number}. ", f"{change}{room_after(offer.after)}")
        if offer.why != change:
            yield prose("     ", f"{offer.why}; price: {offer.price}" if offer.price else offer.why, "dim")


def _command(diagnosis: Diagnosis) -> Iterator[Part]:
    plan = diagnosis.known.priced
    if plan is None or diagnosis.verdict.status is not Status.FAILS:
        return
    changes = len(plan.advice.combined)
    if not changes:
        return
    title = "Command to try" if changes == 1 else f"Command to try: {changes} changes together"
    yield line(f"\n{title}{room_after(plan.advice.after)}", "bold")
    yield line(f"  {show_command(diagnosis.command)}")


def _ledger(diagnosis: Diagnosis) -> Table | None:
    reading = diagnosis.reading
    known = [name for name in _LEDGER if name in reading.measured]
    if not known:
        return None
    predicted = {each.entry: each for each in diagnosis.held}
    rows = []
    for name in known:
        entry = reading.measured[name]
        each = predicted.get("cuda_graphs" if name == "graph_estimate" else name)
        figures = ("", "")
        if each is not None:
            mark = " outside" if each.outside else ""
            figures = (f"{each.expected / GIB:.2f}", f"{(each.logged - each.expected) / GIB:+.2f}{mark}")
        spread = f"{entry.low / GIB:.2f} to {entry.high / GIB:.2f}" if entry.low != entry.high else ""
        rows.append((f"  {name}", f"{entry.value / GIB:.2f}", *figures, str(entry.line), spread))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = []
    for title, cells in zip(_COLUMNS, zip(*rows, strict=True), strict=True):
        if any(cells):
            table.add_column(title, justify="left" if title in _LEFT else "right")
            columns.append(cells)
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    return table


def _explained(diagnosis: Diagnosis) -> Iterator[Part]:
    reading = diagnosis.reading
    yield line("\nTimeline", "bold")
    for step in reading.timeline:
        lasted = f", {step.seconds:.1f} s" if step.seconds is not None else ""
        yield line(f"  {step.at:8.1f} s  {step.stage} (line {step.line}{lasted})")
    yield line("\nSettings that the log shows", "bold")
    for name, value in sorted(reading.settings.items()):
        yield line(f"  {name}: {str(value)[:200]}")
    yield line("\nLines that were recognised", "bold")
    for fact in reading.facts:
        yield line(f"  {fact.line}: {fact.id}: {fact.text[:160]}", "dim")
