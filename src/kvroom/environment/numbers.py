"""Numbers as Linux writes them in its files, None for anything else."""

from __future__ import annotations

from kvroom.units import KIB


def whole(text: str) -> int | None:
    """A whole number of at most 19 digits.

    >>> whole(" 42 "), whole("max"), whole("-1")
    (42, None, None)
    """
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def kib_field(text: str, name: str) -> int | None:
    """Bytes of a line ``name:  123 kB``.

    >>> kib_field("MemTotal:  2 kB", "MemTotal")
    2048
    """
    size = whole(field(text, name).removesuffix("kB"))
    return None if size is None else size * KIB


def field(text: str, name: str) -> str:
    """What follows ``name:`` in the first line that has it, empty when none does."""
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return ""


def count_of_list(text: str) -> int | None:
    """How many numbers a list of ranges has.

    >>> count_of_list("0-3,8"), count_of_list("")
    (5, None)
    """
    count = 0
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        low, high = whole(first), whole(last if dash else first)
        if low is None or high is None or high < low:
            return None
        count += high - low + 1
    return count
