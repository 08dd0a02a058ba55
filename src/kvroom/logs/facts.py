"""Facts: the messages of the catalogue as they occur in a log, with their values."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from kvroom.units import GIB

_SIZE = re.compile(r"(-?[\d.,]+)\s?(bytes|[KMGT]i?B)")
_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True, slots=True)
class Fact:
    """One message found in a log."""

    id: str
    """The message's name in ``data/vllm/messages.toml``."""
    line: int
    """Line of the file, from 1."""
    text: str
    """What was printed, without prefixes."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The message's values as printed."""
    stage: str = ""
    role: str = ""
    process: str = ""
    """Who printed it: ``APIServer``, ``EngineCore_DP0``, ``Worker_TP1``; empty where nobody says."""
    level: str = ""
    file: str = ""
    time: float | None = None
    """Seconds since the start of the year."""

    def number(self, name: str) -> float | None:
        """The value ``name`` as a number, None where it is missing."""
        text = self.values.get(name)
        try:
            number = None if text is None else float(text.replace(",", ""))
        except ValueError:
            return None
        return number if number is not None and math.isfinite(number) else None

    def whole(self, name: str) -> int | None:
        """The value ``name`` as an integer, None where it is missing."""
        number = self.number(name)
        return None if number is None else int(number)

    def gib(self, name: str) -> int | None:
        """The bytes of the value ``name``, which vLLM prints in units of 2**30 whether it writes GB or GiB."""
        number = self.number(name)
        return None if number is None else round(number * GIB)

    def size(self, name: str) -> int | None:
        """The bytes of the value ``name``, which carries its own unit as torch prints it."""
        found = _SIZE.match(self.values.get(name, ""))
        try:
            return round(float(found[1].replace(",", "")) * _UNITS[found[2][0].lower()]) if found else None
        except (ValueError, OverflowError):
            return None


class Facts(Sequence[Fact]):
    """The facts of one start in the order of the log."""

    def __init__(self, facts: Sequence[Fact] = ()) -> None:
        self._facts = tuple(facts)
        self._by_id: dict[str, list[int]] = {}
        for place, fact in enumerate(self._facts):
            self._by_id.setdefault(fact.id, []).append(place)

    @overload
    def __getitem__(self, index: int) -> Fact: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Fact, ...]: ...
    def __getitem__(self, index: int | slice) -> Fact | tuple[Fact, ...]:
        """The fact, or facts, at ``index``."""
        return self._facts[index]

    def __len__(self) -> int:
        """How many facts there are."""
        return len(self._facts)

    def all(self, *ids: str) -> tuple[Fact, ...]:
        """The facts with one of ``ids``, in the order of the log."""
        places = [place for id_ in dict.fromkeys(ids) for place in self._by_id.get(id_, ())]
        return tuple(self._facts[place] for place in (places if len(ids) == 1 else sorted(places)))

    def first(self, *ids: str) -> Fact | None:
        """The first fact with one of ``ids``."""
        places = [found[0] for id_ in ids if (found := self._by_id.get(id_))]
        return self._facts[min(places)] if places else None

    def last(self, *ids: str) -> Fact | None:
        """The last fact with one of ``ids``."""
        places = [found[-1] for id_ in ids if (found := self._by_id.get(id_))]
        return self._facts[max(places)] if places else None

    def before(self, line: int) -> int:
        """How many facts stand in lines before ``line``."""
        return bisect_left(self._facts, line, key=lambda fact: fact.line)

    def number(self, name: str, *ids: str) -> float | None:
        """The value ``name`` of the first of the facts with ``ids`` that has it."""
        return next(self._numbers(name, ids), None)

    def _numbers(self, name: str, ids: Sequence[str]) -> Iterator[float]:
        for fact in self.all(*ids):
            number = fact.number(name)
            if number is not None:
                yield number
