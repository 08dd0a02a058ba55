"""Values of settings as numbers, and numbers and sentences as the findings write them."""

from __future__ import annotations

import math


def number_of(value: object) -> float | None:
    """``value`` as a number, None where it is none.

    >>> number_of("0.9"), number_of(True), number_of("auto"), number_of("nan"), number_of("1e999")
    (0.9, None, None, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def whole_number(value: object) -> int | None:
    """``value`` as an integer, None where it is none.

    >>> whole_number("8"), whole_number(True), whole_number("auto")
    (8, None, None)
    """
    try:
        return None if isinstance(value, bool) else int(str(value))
    except ValueError:
        return None


def floor_length(tokens: float, block: int) -> int:
    """``tokens`` rounded down to whole blocks.

    >>> floor_length(50535.2, 16)
    50528
    """
    return int(tokens) // block * block


def sentence(text: str) -> str:
    """``text`` with a capital letter and a full stop.

    >>> sentence("two GPUs")
    'Two GPUs.'
    """
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
