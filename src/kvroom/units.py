"""Bytes and how they are printed; the only place that multiplies by 1024."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def cdiv(a: int, b: int) -> int:
    """Ceiling of ``a / b`` for non-negative ``a`` and positive ``b``, exact for integers of any size."""
    return -(-a // b)


def gib(n_bytes: float) -> float:
    """``n_bytes`` as GiB."""
    return n_bytes / GIB


def from_gib(value: float) -> int:
    """Bytes of ``value`` GiB, truncated as vLLM truncates."""
    return int(value * GIB)


def show_bytes(n_bytes: float) -> str:
    """``n_bytes`` for people: ``3.21 GiB``, ``24.5 MiB``, ``512 B``.

    >>> show_bytes(3446669312), show_bytes(25690112), show_bytes(512)
    ('3.21 GiB', '24.5 MiB', '512 B')
    """
    size = abs(n_bytes)
    if size >= GIB / 10:
        return f"{n_bytes / GIB:.2f} GiB"
    if size >= MIB / 10:
        return f"{n_bytes / MIB:.1f} MiB"
    if size >= KIB:
        return f"{n_bytes / KIB:.1f} KiB"
    return f"{n_bytes:.0f} B"
