"""The KV cache of a model as text: a table, where the bytes are, a plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from kvroom.report.kv_chart import Chart, Curve, show_tokens, text_chart
from kvroom.report.terminal import Part, line, print_parts, prose
from kvroom.sizing.kv import KvTable
from kvroom.units import KIB, show_bytes

if TYPE_CHECKING:
    from rich.console import Console


def print_kv(table: KvTable, counts: Sequence[int], notes: Sequence[str], console: Console) -> None:
    """Print ``table`` with a column for batches of each of ``counts`` sequences."""
    print_parts(_parts(table, counts, notes, console), console)


def kv_chart(table: KvTable, counts: Sequence[int]) -> Chart:
    """Bytes on one GPU against context, a curve for each of at most four of ``counts``."""
    kept = list(counts) if len(counts) <= 4 else [counts[0], *counts[1:-1][:: max(1, len(counts) // 3)][:2], counts[-1]]
    curves = tuple(
        Curve(f"{count} sequence{'s' * (count > 1)}", tuple((row.length, row.batch_bytes(count)) for row in table.rows))
        for count in kept
    )
    label = f"pool, {show_bytes(table.pool_bytes)}" if table.pool_bytes else ""
    return Chart(curves, table.pool_bytes, label)


def kv_title(table: KvTable) -> str:
    """One line: the model, the release, the cache's dtype, the backend, the parallelism."""
    prediction = table.prediction
    args, settings, backend = prediction.setup.args, prediction.settings, prediction.backend
    assert settings is not None
    assert backend is not None
    sizes = [("TP", args.tensor_parallel_size), ("PP", args.pipeline_parallel_size)]
    parallel = "".join(f", {name} {size}" for name, size in sizes if size > 1)
    dtype = settings.dtype if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype
    name = args.model or prediction.setup.shape.name
    return f"{name}, vLLM {prediction.setup.release}, {backend.name}, KV cache in {dtype}{parallel}"


def show_token_bytes(n_bytes: int) -> str:
    """A token's bytes, always in KiB, since people compare them."""
    return f"{n_bytes / KIB:,.1f} KiB"


def _parts(table: KvTable, counts: Sequence[int], notes: Sequence[str], console: Console) -> Iterator[Part]:
    yield line(kv_title(table), "bold")
    if not any(row.blocks for row in table.rows):
        yield line("It keeps no KV cache.")
        return
    many = table.total_token_bytes != table.token_bytes
    over = f" on each GPU, {show_token_bytes(table.total_token_bytes)} over all of them" if many else ""
    yield line(f"{show_token_bytes(table.token_bytes)} for each further token of a long sequence{over}")
    if table.copies > 1.001:
        yield line(f"Every value is stored {table.copies:g} times: tensor-parallel ranks hold the same KV heads.")
    if table.pool_bytes is not None:
        yield line(f"Pool: {show_bytes(table.pool_bytes)} a GPU ({table.pool_why})")
    yield line("")
    yield _table(table, counts)
    if table.pool_bytes is not None:
        yield line("* more than the pool holds", "dim")
    yield from _kinds(table)
    if len(table.rows) > 1:
        yield line("\nBytes on one GPU against context", "bold")
        for row in text_chart(kv_chart(table, counts), min(console.width - 16, 72)):
            yield line(row)
    for note in notes:
        yield prose("note: ", note, "dim")


def _table(table: KvTable, counts: Sequence[int]) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("context", "blocks", *(f"{count:,} at once" for count in counts)):
        grid.add_column(name, justify="right")
    if table.pool_bytes is not None:
        grid.add_column("the pool holds", justify="right")
    for row in table.rows:
        cells = [f"{row.length:,}", f"{row.blocks:,}"]
        for count in counts:
            over = row.sequences is not None and count > row.sequences
            cells.append(show_bytes(row.batch_bytes(count)) + ("*" if over else " " * (row.sequences is not None)))
        if row.concurrency is not None:
            cells.append(f"{row.sequences:,} ({row.concurrency:.2f})")
        grid.add_row(*cells)
    return grid


def _kinds(table: KvTable) -> Iterator[Part]:
    """Where the bytes of one sequence are, at the shortest and the longest context."""
    ends = (table.rows[0], table.rows[-1]) if len(table.rows) > 1 else (table.rows[0],)
    yield line("\nWhere one sequence lies, by kind of layer", "bold")
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("kind")
    grid.add_column("layers", justify="right")
    for row in ends:
        grid.add_column(f"at {show_tokens(row.length)}", justify="right")
    for number, kind in enumerate(ends[0].kinds):
        cells = []
        for row in ends:
            size = row.kinds[number].n_bytes
            cells.append(f"{show_bytes(size)} ({100 * size / max(row.sequence_bytes, 1):.0f} %)")
        grid.add_row(kind.kind, str(kind.layers), *cells)
    yield grid
