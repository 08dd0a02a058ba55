"""``kvroom engine list``: as a table and as JSON."""

from __future__ import annotations

from typing import Any

from kvroom.cli.output import show, write
from kvroom.tracing.base import base_size
from kvroom.tracing.keep import Keep, Kept
from kvroom.units import show_bytes


def print_engines(keep: Keep, every: list[Kept]) -> None:
    """Print a line for each engine, and where they lie."""
    if not every:
        write(f"no engine is kept in {keep.folder}; make one with: kvroom engine install 0.28.0\n")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("vLLM", "Python", "transformers", "size", "made", "works"):
        table.add_column(name, justify="right" if name == "size" else "left")
    for kept in every:
        works = f"no: {kept.problem}" if kept.problem else "yes"
        size = show_bytes(kept.size) if kept.size else "?"
        made = kept.made[:16].replace("T", " ")
        table.add_row(kept.version, kept.python or "?", kept.transformers or "?", size, made or "?", works)
    show(lambda console: console.print(table))
    shared = "".join(f"shared: {path.name}, {show_bytes(base_size(path))}\n" for path in keep.bases())
    write(f"\n{shared}in {keep.folder}\n")


def engines_data(keep: Keep, every: list[Kept]) -> dict[str, Any]:
    """The same as data; sizes in bytes, times in UTC."""
    return {
        "schema": "kvroom/1",
        "folder": str(keep.folder),
        "shared": [{"name": path.name, "bytes": base_size(path)} for path in keep.bases()],
        "engines": [
            {
                "version": kept.version,
                "works": not kept.problem,
                "problem": kept.problem or None,
                "python": kept.python or None,
                "interpreter": str(kept.interpreter) if kept.base else None,
                "pythonpath": [str(path) for path in kept.paths],
                "from": kept.distribution or None,
                "transformers": kept.transformers or None,
                "transformers_asked": kept.transformers_asked or None,
                "bytes": kept.size or None,
                "made": kept.made or None,
            }
            for kept in every
        ],
    }
