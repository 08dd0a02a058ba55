"""Large tensors of the host without the memory for them: pages that nobody writes are never there."""

from __future__ import annotations

import math
import mmap
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

LARGE = 64 << 20
_NO_RESERVE = 0x4000
"""MAP_NORESERVE of Linux; Python names it in some releases only."""
_MADE = {torch.ops.aten.zeros.default, torch.ops.aten.empty.memory_format}


def unwritten(func: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """The zeros that ``func`` is to make on the CPU where they are large, else None; those on the meta device are none.

    A runner keeps the tokens of every sequence on the host: 40 GiB at a context of ten million.
    """
    device = kwargs.get("device")
    if func not in _MADE or (device is not None and torch.device(device).type != "cpu"):
        return None
    shape = tuple(int(each) for each in args[0])
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE:
        return None
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    with _disable_current_modes():
        return torch.frombuffer(pages, dtype=dtype).view(shape)
