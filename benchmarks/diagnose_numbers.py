"""Numbers of a report against numbers of a diagnosis, at the precision in which the log printed them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

Number = int | float

_NUMBER = re.compile(r"(?<![\w.,-])(-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d+(?:\.\d+)?)(?!\.?\d)")
_UNITS = {"": 1, "MiB": 2**20, "GiB": 2**30}
_DECIMAL_GB = 10**9
_SLACK = Decimal("1e-8")
"""What whole bytes may lose against the printed figure, in units of it."""


def is_number(value: object) -> bool:
    """Whether ``value`` is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def printed(value: Number, text: str) -> str | None:
    """``value`` as ``text`` writes it, commas dropped; None where its digits do not occur.

    Where it stands there more than once, a whole number is taken with the fewest decimals, another with the most.

    >>> printed(1487645, "(1,487,645 tokens)"), printed(13.9476, "took 13.9476 GB"), printed(243, "v0.24.3")
    ('1487645', '13.9476', None)
    >>> printed(0.0, "# cuda blocks: 0, 0.00x"), printed(150000, "150K tokens")
    ('0.00', None)
    """
    wanted = Decimal(str(value))
    found = [token.replace(",", "") for token in _NUMBER.findall(text)]
    same = [token for token in found if Decimal(token) == wanted]
    choose = min if isinstance(value, int) else max
    return choose(same, key=lambda token: len(token.partition(".")[2]), default=None)


def equal(candidate: Number, literal: str, unit: str, text: str = "") -> bool:
    """Whether ``candidate`` (bytes where ``unit`` is a size) is printed as ``literal``.

    Whole numbers without a unit must be equal; GB after the literal in ``text`` may be read as 10^9 as well.

    >>> equal(7451768094, "6.94", "GiB"), equal(7451768094, "6.95", "GiB"), equal(4.8674, "4.87", "")
    (True, False, True)
    >>> equal(81536, "81536", ""), equal(81537, "81536", ""), equal(19_740_000_000, "19.74", "GiB", "19.74GB")
    (True, False, True)
    """
    if not unit and isinstance(candidate, int):
        return Decimal(candidate) == Decimal(literal)
    half = Decimal(5).scaleb(-len(literal.partition(".")[2]) - 1)
    factors = [_UNITS[unit]]
    if unit == "GiB" and re.search(re.escape(literal) + r"\s?GB\b", text):
        factors.append(_DECIMAL_GB)
    wanted = Decimal(literal)
    return any(abs(Decimal(str(candidate)) / factor - wanted) <= half + _SLACK for factor in factors)


def found_at(data: Mapping[str, Any], places: Iterable[str]) -> list[Number]:
    """The numbers that ``data`` holds at ``places``: names joined by dots, * for any text in a name.

    In a list a name picks the ledger entry of that name (its expected value), else it is looked up in every item.

    >>> data = {"ledger": [{"entry": "weights", "expected": 7}], "devices": [{"free": 3}], "numbers": {"kv_need": 5}}
    >>> found_at(data, ["ledger.weights", "devices.free", "numbers.*need*", "pool.tokens"])
    [7, 3, 5]
    """
    return [value for place in places for value in _walk(data, place.split("."))]


def _walk(value: Any, names: list[str]) -> Iterator[Number]:
    if not names:
        for each in value if isinstance(value, list) else [value]:
            if is_number(each):
                yield each
        return
    if isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping) and item.get("entry") == names[0]:
                yield from _walk(item.get("expected"), names[1:])
            elif isinstance(item, Mapping) and "entry" not in item:
                yield from _walk(item, names)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if fnmatchcase(str(key), names[0]):
                yield from _walk(inner, names[1:])
