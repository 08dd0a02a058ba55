"""How fast a launch serves, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from kvroom.report.terminal import Part, line, print_parts, prose
from kvroom.throughput.estimate import Estimate, Row
from kvroom.throughput.tables import Tabled

if TYPE_CHECKING:
    from rich.console import Console

_INTERVAL = "80 of 100 launches"
_BOUND = "decoding is bound by"


def print_throughput(
    found: Estimate, targets: str, notes: Sequence[str], console: Console, tables: Tabled | None = None
) -> None:
    """Print ``found``, beside it what ``tables`` say; ``targets`` are those of the goodput in words."""
    print_parts(_parts(found, targets, notes, tables), console)


def _parts(found: Estimate, targets: str, notes: Sequence[str], tables: Tabled | None) -> Iterator[Part]:
    setup, load = found.prediction.setup, found.load
    machine = setup.machine
    yield line(f"{setup.args.model} on {machine.count} x {machine.device.name}, vLLM {setup.release}", "bold")
    yield line(f"Requests of {load.prompt:,} prompt and {load.answer:,} answer tokens, each replaced when it ends\n")
    yield _both(found, tables) if tables is not None and tables.rows else _grid(found)
    yield line("")
    turn = f"from {found.turns_at:,} at once" if found.turns_at is not None else "not within what runs at once"
    yield line(f"Decoding turns from memory to arithmetic {turn}; the pool holds {found.pool_batch:,} such requests.")
    yield line(f"Prompts are read at {found.prompt_rate:,.0f} tokens/s a replica while nothing decodes.")
    if found.goodput is not None:
        rate = f"{found.goodput:.2f} requests/s" if found.goodput else "none: one request alone misses them"
        yield line(f"Goodput under {targets}: {rate} (nine of ten meet them, arriving at random)")
    yield prose("basis: ", _basis(found), "dim")
    if tables is not None:
        yield from _said(tables)
    for note in notes:
        yield prose("note: ", note, "dim")


def _grid(found: Estimate) -> Table:
    grid = _table("at once", "TTFT", "TPOT", _INTERVAL, "tokens/s", "a user", _BOUND)
    for row in found.rows:
        grid.add_row(
            f"{row.concurrency:,}",
            seconds(row.ttft),
            seconds(row.tpot),
            _around(found, row),
            f"{row.throughput:,.0f}",
            f"{1 / row.tpot:,.0f}/s" if row.tpot else "-",
            _bound(row),
        )
    return grid


def _both(found: Estimate, tables: Tabled) -> Table:
    """Each figure of the roofline with that of measured kernels to its right."""
    grid = _table("at once", "TTFT", "kernels", "TPOT", "kernels", _INTERVAL, "tokens/s", "kernels", _BOUND)
    for row, other in zip(found.rows, tables.rows, strict=True):
        grid.add_row(
            f"{row.concurrency:,}",
            seconds(row.ttft),
            seconds(other.ttft),
            seconds(row.tpot),
            seconds(other.tpot),
            _around(found, row),
            f"{row.throughput:,.0f}",
            f"{other.throughput:,.0f}",
            _bound(row),
        )
    return grid


def _table(*names: str) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        grid.add_column(name, justify="right")
    return grid


def _around(found: Estimate, row: Row) -> str:
    low, high = found.interval("tpot")
    return f"{1000 * row.tpot * low:.1f}-{1000 * row.tpot * high:.1f} ms"


def _bound(row: Row) -> str:
    return ("memory" if row.memory_share >= 1 else "arithmetic") + (" (pool full)" if row.preemptions else "")


def _said(tables: Tabled) -> Iterator[Part]:
    """What the columns of kernels are and what misleads in them, or why there are none."""
    if not tables.rows:
        yield prose("note: ", f"no times by measured kernels: {tables.source}: {tables.note}", "dim")
        return
    yield prose(
        "kernels: ",
        f"{tables.source}: times that NVIDIA measured on this card, put together by the same scheduler; the host's "
        "time is not in them, so that most launches are slower",
        "dim",
    )
    if tables.note:
        yield prose("note: ", f"{tables.source}: {tables.note}", "dim")


def seconds(value: float) -> str:
    """A time for people."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms" if value < 0.1 else f"{1000 * value:.0f} ms"


def _basis(found: Estimate) -> str:
    fit = found.fit
    if found.scale.measured:
        return (
            f"a roofline scaled by {found.scale.factor:.2f} to what was measured on this machine; the interval is that "
            "of other loads after one such run"
        )
    same = "runs on this card are among them" if found.card.name in fit.cards else "none was on this card"
    return (
        f"a roofline over weights, KV cache and arithmetic, with factors fitted on {fit.runs} public runs on "
        f"{len(fit.cards)} cards ({same}); {found.card.basis}"
    )
