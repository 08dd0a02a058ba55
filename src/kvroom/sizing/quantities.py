"""How people write a need: tokens (``32k``), times (``50ms``), rates (``5/s``), money (``H100=2.5``)."""

from __future__ import annotations

import math
import re

from kvroom.errors import UsageError, short

_TOKENS = re.compile(r"(\d+(?:\.\d+)?)\s*([km]?)(?:\s*(?:tokens|tok))?", re.IGNORECASE | re.ASCII)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|seconds|min)", re.IGNORECASE | re.ASCII)
_RATE = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:req|requests|rq)?\s*/\s*(s|sec|second|min|minute|h|hour)", re.IGNORECASE | re.ASCII
)
_MOST = 10**9
_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "min": 60.0}
_PER = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}


def tokens(text: str, option: str) -> int:
    """The tokens that ``text`` writes; UsageError for what is none, zero or out of reach.

    ``k`` and ``M`` count in 1,024s, whatever their case, since a context of 32k means 32,768: the larger reading is
    the safe one for a need.

    >>> tokens("32k", "--context"), tokens("2000", "--context"), tokens("1M", "--context")
    (32768, 2000, 1048576)
    """
    match = _TOKENS.fullmatch(text.strip().replace(",", "")) if len(text) < 40 else None
    if match is None:
        raise UsageError(f"{option} {short(text)}: not a number of tokens.", "Write it as in 32768 or 32k.")
    size = float(match[1]) * {"": 1, "k": 1024, "m": 1024 * 1024}[match[2].lower()]
    if size != int(size) or not 1 <= size <= _MOST:
        raise UsageError(f"{option} {short(text)}: not a usable number of tokens.", f"From 1 to {_MOST:,}, whole.")
    return int(size)


def token_list(text: str, option: str) -> tuple[int, ...]:
    """The numbers of tokens in ``text``, separated by commas, each once, smallest first."""
    return tuple(sorted({tokens(part, option) for part in text.split(",")}))


def counts(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers from 1, separated by commas, each once, smallest first."""
    found = set()
    for part in text.split(","):
        word = part.strip()
        if not (word.isascii() and word.isdecimal()) or len(word) > 7 or int(word) < 1:
            raise UsageError(f"{option} {short(text)}: '{short(word, 20)}' is no count.", "Whole numbers from 1.")
        found.add(int(word))
    return tuple(sorted(found))


def seconds(text: str, option: str) -> float:
    """The time that ``text`` writes, in seconds; a unit is needed, since milliseconds and seconds are both usual.

    >>> seconds("50ms", "--tpot"), seconds("2s", "--ttft")
    (0.05, 2.0)
    """
    match = _TIME.fullmatch(text.strip()) if len(text) < 40 else None
    if match is None:
        raise UsageError(f"{option} {short(text)}: not a time with its unit.", "Write it as in 50ms or 2s.")
    found = float(match[1]) * _SECONDS[match[2].lower()]
    if not 0 < found < 86_400:
        raise UsageError(f"{option} {short(text)}: a target is above 0 and below a day.")
    return found


def per_second(text: str, option: str) -> float:
    """The rate that ``text`` writes, in requests a second.

    >>> per_second("5/s", "--rate"), per_second("300/min", "--rate")
    (5.0, 5.0)
    """
    match = _RATE.fullmatch(text.strip()) if len(text) < 40 else None
    if match is None:
        raise UsageError(f"{option} {short(text)}: not a rate with its unit.", "Write it as in 5/s or 300/min.")
    found = float(match[1]) / _PER[match[2].lower()]
    if not 0 < found <= 1e6 or not math.isfinite(found):
        raise UsageError(f"{option} {short(text)}: a rate is above 0 and at most 1,000,000/s.")
    return found
