"""How fast a launch serves, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from kvroom.report.terminal import Part, line, print_parts, prose
from kvroom.throughput.estimate import Estimate

if TYPE_CHECKING:
    from rich.console import Console


def print_throughput(found: Estimate, targets: str, notes: Sequence[str], console: Console) -> None:
    """Print ``found``; ``targets`` are those of the goodput in words."""
    print_parts(_parts(found, targets, notes), console)


def _parts(found: Estimate, targets: str, notes: Sequence[str]) -> Iterator[Part]:
    setup, load = found.prediction.setup, found.load
    machine = setup.machine
    yield line(f"{setup.args.model} on {machine.count} x {machine.device.name}, vLLM {setup.release}", "bold")
    yield line(f"Requests of {load.prompt:,} prompt and {load.answer:,} answer tokens, each replaced when it ends\n")
    low, high = found.interval("tpot")
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("at once", "TTFT", "TPOT", "80 of 100 launches", "tokens/s", "a user", "decoding is bound by"):
        grid.add_column(name, justify="right")
    for row in found.rows:
        full = " (pool full)" if row.preemptions else ""
        grid.add_row(
            f"{row.concurrency:,}",
            seconds(row.ttft),
            seconds(row.tpot),
            f"{1000 * row.tpot * low:.1f}-{1000 * row.tpot * high:.1f} ms",
            f"{row.throughput:,.0f}",
            f"{1 / row.tpot:,.0f}/s" if row.tpot else "-",
            ("memory" if row.memory_share >= 1 else "arithmetic") + full,
        )
    yield grid
    yield line("")
    turn = f"from {found.turns_at:,} at once" if found.turns_at is not None else "not within what runs at once"
    yield line(f"Decoding turns from memory to arithmetic {turn}; the pool holds {found.pool_batch:,} such requests.")
    yield line(f"Prompts are read at {found.prompt_rate:,.0f} tokens/s a replica while nothing decodes.")
    if found.goodput is not None:
        rate = f"{found.goodput:.2f} requests/s" if found.goodput else "none: one request alone misses them"
        yield line(f"Goodput under {targets}: {rate} (nine of ten meet them, arriving at random)")
    yield prose("basis: ", _basis(found), "dim")
    for note in notes:
        yield prose("note: ", note, "dim")


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
