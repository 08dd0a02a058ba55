"""Ways to store the weights, compared as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from kvroom.ledger.verdict import Status
from kvroom.report.terminal import Part, line, print_parts, prose
from kvroom.sizing.checkpoints import Listed
from kvroom.sizing.quant import QuantRow, QuantTable
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from rich.console import Console


def print_quant(table: QuantTable, found: Mapping[str, Listed] | None, notes: Sequence[str], console: Console) -> None:
    """Print ``table``; ``found`` are checkpoints by the name of how they are stored, None where nobody asked."""
    print_parts(_parts(table, found, notes), console)


def _parts(table: QuantTable, found: Mapping[str, Listed] | None, notes: Sequence[str]) -> Iterator[Part]:
    machine = table.setup.machine
    name = table.setup.args.model or table.setup.shape.name
    yield line(f"{name} on {machine.count} x {machine.device.name}, vLLM {table.setup.release}", "bold")
    yield line(
        f"GPUs: the fewest such cards that hold {table.concurrency:,} request{'s' * (table.concurrency > 1)} of "
        f"{table.context:,} tokens at once\n"
    )
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("weights stored as")
    for title in ("a GPU", "left for KV", "tokens", "longest"):
        grid.add_column(title, justify="right")
    grid.add_column("starts")
    grid.add_column("computed")
    grid.add_column("GPUs", justify="right")
    for row in table.rows:
        grid.add_row(row.label, *_figures(row), _gpus(table, row))
    yield grid
    yield from _refused(table)
    yield from _checkpoints(table, found)
    yield from _caveats(table)
    yield line("Weight-only formats are unpacked to 16 bits for computing: less memory, no faster arithmetic.", "dim")
    for note in notes:
        yield prose("note: ", note, "dim")


def _figures(row: QuantRow) -> list[str]:
    if not row.runs:
        return [show_bytes(row.weights_bytes) if row.weights_bytes else "-", "-", "-", "-", "no", "-"]
    left = show_bytes(row.available_bytes) if row.available_bytes > 0 else "none"
    starts = {Status.FITS: "yes", Status.TIGHT: "perhaps"}.get(row.status, "no")
    return [
        show_bytes(row.weights_bytes),
        left,
        f"{row.tokens:,}" if row.tokens else "-",
        f"{row.longest:,}" if row.longest else "-",
        starts,
        row.runs,
    ]


def _gpus(table: QuantTable, row: QuantRow) -> str:
    if row.gpus is None:
        return "-"
    saved = table.saved(row)
    if not saved:
        return str(row.gpus)
    return f"{row.gpus} ({saved} saved)" if saved > 0 else f"{row.gpus} ({-saved} more)"


def _refused(table: QuantTable) -> Iterator[Part]:
    for row in table.rows:
        if not row.runs:
            yield prose("  ", f"{row.label} does not run: {row.why_not}", "yellow")


def _checkpoints(table: QuantTable, found: Mapping[str, Listed] | None) -> Iterator[Part]:
    if found is None:
        return
    yield line("\nPublic checkpoints, most downloaded of each kind", "bold")
    if not found:
        yield line("  the hub lists none that names this model as its base")
    for row in table.rows:
        if row.name in found:
            listed = found[row.name]
            yield line(f"  {row.label}: {listed.repo} ({listed.downloads:,} downloads in a month)")


def _caveats(table: QuantTable) -> Iterator[Part]:
    """One honest line for each caveat, with those that share it."""
    shared: dict[tuple[str, str], list[str]] = {}
    for row in table.rows:
        if row.caveat and row.runs:
            shared.setdefault((row.caveat, row.source), []).append(row.label)
    if shared:
        yield line("\nWhat is known of quality", "bold")
    sources = list(dict.fromkeys(source for _, source in shared))
    for (caveat, source), labels in shared.items():
        yield prose("  ", f"{'; '.join(labels)}: {caveat} [{sources.index(source) + 1}]")
    for number, source in enumerate(sources, 1):
        yield prose(f"  [{number}] ", source, "dim")
