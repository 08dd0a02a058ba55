"""What was learned, as a table and as JSON (see docs/json.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from kvroom.learned.measurement import Measurement
from kvroom.report.schema import SCHEMA
from kvroom.report.terminal import line
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = ("weights", "activation", "other", "available")


def measurement_data(measurement: Measurement) -> dict[str, Any]:
    """One measurement; sizes in bytes per GPU."""
    return {"id": measurement.id, **measurement.data()}


def learned_data(kept: Sequence[Measurement], store: str | None = None) -> dict[str, Any]:
    """What is kept; with ``store`` also where, which an exported file does not say."""
    data: dict[str, Any] = {"schema": SCHEMA, "kind": "learned"}
    if store is not None:
        data["store"] = store
    return {**data, "measurements": [measurement_data(each) for each in kept]}


def lessons_data(lessons: Sequence[tuple[str, Measurement | str]], new: int, store: str) -> dict[str, Any]:
    """What logs taught: by source a measurement, or why there is none."""
    taught = [{"source": source, **measurement_data(each)} for source, each in lessons if not isinstance(each, str)]
    nothing = [{"source": source, "why": each} for source, each in lessons if isinstance(each, str)]
    return {"schema": SCHEMA, "kind": "learn", "store": store, "new": new, "learned": taught, "nothing": nothing}


def print_learned(kept: Sequence[Measurement], store: str, console: Console) -> None:
    """A line for each measurement, sizes in GiB per GPU, and where they are kept."""
    if not kept:
        console.print(line(f"nothing was learned yet; {store} would keep it: kvroom learn vllm.log"), soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False)
    for name in ("id", "learned", "GPU", "vLLM", *_SHOWN, "model and flags"):
        table.add_column(name, justify="right" if name in _SHOWN else "left", no_wrap=name in {"id", "learned", "vLLM"})
    for each in kept:
        count = f"{each.gpus} x " if each.gpus > 1 else ""
        sizes = [f"{each.sizes[name] / GIB:.2f}" if name in each.sizes else "" for name in _SHOWN]
        cells = [each.id, each.learned[:10], f"{count}{each.gpu}", str(each.release), *sizes]
        launch = f"{each.model}\n{' '.join(each.words)}"
        table.add_row(*(line(cell) for cell in (*cells, launch)))
    console.print(table)
    console.print()
    console.print(line(f"GiB per GPU; {len(kept)} kept in {store}"), soft_wrap=True)


def print_lessons(lessons: Sequence[tuple[str, Measurement | str]], console: Console) -> None:
    """A line for each log."""
    for source, each in lessons:
        name = source or "standard input"
        if isinstance(each, str):
            text = f"{name}: nothing to learn: {each}"
        else:
            sizes = ", ".join(f"{entry} {show_bytes(size)}" for entry, size in each.sizes.items())
            count = f"{each.gpus} x " if each.gpus > 1 else ""
            text = f"{name}: learned {each.id}: {each.model} on {count}{each.gpu}, vLLM {each.release}: {sizes}"
        console.print(line(text), soft_wrap=True)
