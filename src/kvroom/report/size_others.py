"""The two other questions of sizing as text: several models on one card, and what runs on GPUs that are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from kvroom.report.command import show_command
from kvroom.report.terminal import Part, line, print_parts, prose
from kvroom.sizing.have import Fit
from kvroom.sizing.share import Sharing, held, lacking
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from rich.console import Console


def print_share(sharing: Sharing, notes: Sequence[str], console: Console) -> None:
    """Print the budgets of several models on one card."""
    print_parts(_share(sharing, notes), console)


def _share(sharing: Sharing, notes: Sequence[str]) -> Iterator[Part]:
    device = sharing.device
    yield line(f"{len(sharing.instances)} models on one {device.name}, {show_bytes(device.total_low)}", "bold")
    if sharing.fits:
        words = f"FITS  they start in any order; {show_bytes(sharing.spare_bytes)} are left"
        yield line(words, "bold green")
    else:
        yield line(f"FAILS  {lacking(sharing)}", "bold red")
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("model")
    for name in ("context", "at once", "KV cache", "footprint", "utilization", "holds"):
        grid.add_column(name, justify="right")
    for one in sharing.instances:
        grid.add_row(
            one.tenant.words[0],
            f"{one.tenant.context:,}",
            f"{one.tenant.concurrency:,}",
            show_bytes(one.cache_bytes),
            show_bytes(one.footprint_bytes),
            f"{one.utilization:.2f}",
            f"{held(one):.1f}",
        )
    yield grid
    yield prose(
        "  ", "A footprint is the cache and the high end of weights, peak, other memory, CUDA graphs and context."
    )
    yield line("\nCommands", "bold")
    for number, one in enumerate(sharing.instances):
        port = ("--port", str(8000 + number)) if number else ()
        yield line(f"  {show_command(('vllm', 'serve', *one.tokens, *port))}")
    for note in notes:
        yield prose("note: ", note, "dim")


def print_have(title: str, fits: Sequence[Fit], console: Console, *, top: int) -> None:
    """Print what runs on GPUs that are there."""
    print_parts(_have(title, fits, top), console)


def _have(title: str, fits: Sequence[Fit], top: int) -> Iterator[Part]:
    yield line(title, "bold")
    if not fits:
        yield line("NONE  no packaged model fits", "bold red")
        return
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("model")
    grid.add_column("parameters", justify="right")
    grid.add_column("context", justify="right")
    grid.add_column("of", justify="right")
    grid.add_column("weights")
    grid.add_column("spread")
    for fit in fits[:top]:
        grid.add_row(
            fit.model,
            f"{fit.params / 1e9:,.1f} B",
            f"{fit.context:,}",
            f"{fit.limit:,}",
            fit.weights,
            fit.layout.label(),
        )
    yield grid
    if len(fits) > top:
        yield line(f"{len(fits) - top} more: --top {len(fits)}", "dim")
    stored = "" if fits[0].weights == "as it is" else f"  # with a {fits[0].weights} checkpoint"
    yield line(f"\nThe largest\n  {show_command(('vllm', 'serve', *fits[0].tokens))}{stored}")
