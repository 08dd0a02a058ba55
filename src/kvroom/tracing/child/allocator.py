"""Bytes as torch's allocator hands them out on a card, and what operators take inside of themselves."""

from __future__ import annotations

import torch

_ROUND = 512
_SORTED_IN_PLACE, _SEGMENTED = 4096, 128


def block(size: int) -> int:
    """Bytes of the block that the caching allocator hands out, see c10/cuda/CUDACachingAllocator.cpp.

    From 10 MiB on it asks for whole 2 MiB, and cuts off what is left only where that is more than 1 MiB.
    """
    size = -(-size // _ROUND) * _ROUND
    if size < 10 << 20:
        return size
    whole = -(-size // (2 << 20)) * (2 << 20)
    return whole if whole - size <= 1 << 20 else size


def inside_sort(keys: torch.Tensor) -> int:
    """Bytes that ``sort`` takes while it runs beside what it returns, see ATen's cuda/Sort.cpp and Sort.cu.

    From 128 rows: 64-bit positions, and CUB's second buffers of keys and positions. With them, Llama-3.1-8B at
    1,024 sequences comes to the 4.76 GiB that vLLM 0.11 to 0.16 logged on an H100.
    """
    columns = keys.shape[-1] if keys.dim() else 1
    rows = keys.numel() // max(columns, 1)
    if columns <= _SORTED_IN_PLACE or rows <= 1:
        return 0
    buffers = 8 + keys.element_size()
    return keys.numel() * (8 + buffers if rows >= _SEGMENTED else 16 + keys.element_size() + buffers)
