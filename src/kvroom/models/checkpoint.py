"""How many bytes a checkpoint's tensors take, from safetensors headers and indexes alone.

Weights are never read: a header is the first few kilobytes of a file, an index a JSON file beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_HEADER = 100_000_000
"""The format's own limit on a header's length, in bytes."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the headers say: bytes in all, and by safetensors dtype where every header was read."""

    total_bytes: int
    by_dtype: tuple[tuple[str, int], ...] = ()


def from_index(index: Mapping[str, Any]) -> Checkpoint | None:
    """The total that ``model.safetensors.index.json`` states; None when it states none."""
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or total <= 0:
        return None
    return Checkpoint(total)


def from_headers(headers: Iterable[Mapping[str, Any]]) -> Checkpoint | None:
    """The sum over files' headers (tensor name -> dtype, shape, data_offsets); None when they hold none."""
    sizes: dict[str, int] = {}
    for header in headers:
        for name, tensor in header.items():
            if name == "__metadata__" or not isinstance(tensor, Mapping):
                continue
            size = _length(tensor.get("data_offsets"))
            dtype = str(tensor.get("dtype", ""))[:16]
            sizes[dtype] = sizes.get(dtype, 0) + size
    total = sum(sizes.values())
    return Checkpoint(total, tuple(sorted(sizes.items()))) if total else None


def _length(offsets: object) -> int:
    if isinstance(offsets, list | tuple) and len(offsets) == 2:
        first, last = offsets
        if isinstance(first, int) and isinstance(last, int):
            return max(0, last - first)
    return 0
