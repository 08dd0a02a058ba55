"""What a run is after: a context, a concurrency or throughput, and limits that must hold.

``context=32k``, ``concurrency=16@8k``, ``throughput``; limits ``ttft<2s``, ``tpot<50ms``, ``peak<95%``,
``throughput>100``. Here k is 1,024 and M 1,048,576 tokens, in either case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.devices.names import parse_memory
from kvroom.errors import KvroomError, UsageError, short
from kvroom.trials.figures import Figures
from kvroom.units import show_bytes

_TOKENS = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)([kKmM]?)")
_GOAL = re.compile(r"(?P<kind>context|concurrency|throughput)(?:=(?P<count>[^@]+)(?:@(?P<length>.+))?)?")
_LIMIT = re.compile(r"(?P<name>[a-z]+)\s*(?P<sign><=|>=|<|>)\s*(?P<value>\S+)")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s)")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)%")
_FORMS = "context=32k, concurrency=16@8k or throughput"
_LIMITS = "ttft<2s, tpot<50ms, peak<95%, peak<20GiB or throughput>100"


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be reached."""

    kind: str
    """``context``, ``concurrency`` or ``throughput``."""
    length: int | None = None
    """Tokens that one request may have; None where the command says it."""
    requests: int | None = None
    """Requests of that length that the pool must hold at once."""

    def __str__(self) -> str:
        """As it is written."""
        if self.kind == "context":
            return f"context={self.length}"
        return f"concurrency={self.requests}@{self.length}" if self.kind == "concurrency" else "throughput"

    def progress(self, figures: Figures, max_num_seqs: int | None) -> float:
        """How near ``figures`` come, 1 where the goal is met."""
        if self.length is None:
            return 1.0
        length = min(1.0, (figures.max_model_len or 0) / self.length)
        if self.requests is None:
            return length
        room = min(1.0, (figures.kv_tokens or 0) / (self.requests * self.length))
        seats = 1.0 if max_num_seqs is None else min(1.0, max_num_seqs / self.requests)
        return length * min(room, seats)


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure that must stay on one side of a value."""

    name: str
    """``ttft``, ``tpot`` (seconds), ``peak`` (bytes, or a share) or ``throughput`` (tokens a second)."""
    above: bool
    """Whether the figure must be above the value."""
    value: float
    share: bool = False
    """Of ``peak``: the value is a share of the total."""

    def __str__(self) -> str:
        """As it is written."""
        sign = ">" if self.above else "<"
        return f"{self.name}{sign}{self.shown(self.value)}"

    def shown(self, value: float) -> str:
        """A value of this figure, for people."""
        if self.name in {"ttft", "tpot"}:
            return f"{value * 1000:.0f}ms" if value < 1 else f"{value:.3g}s"
        if self.name == "peak":
            return f"{value:.1%}" if self.share else show_bytes(value).replace(" ", "")
        return f"{value:.4g}"

    def figure(self, figures: Figures) -> float | None:
        """The figure that it is about, None where it was not measured."""
        if self.name == "peak":
            peak = figures.peak
            return None if peak is None else peak.share if self.share else float(peak.used_bytes)
        value: float | None = getattr(figures, self.name)
        return value

    def excess(self, figures: Figures) -> float:
        """By which share the figure is beyond the value, 0 where the limit holds; infinite where it is unknown."""
        value = self.figure(figures)
        if value is None:
            return math.inf
        if self.above:
            return max(0.0, (self.value - value) / self.value)
        return max(0.0, (value - self.value) / self.value)

    def margin(self, figures: Figures) -> str:
        """How far the figure is from the value, for people."""
        value = self.figure(figures)
        return f"{self}: not measured" if value is None else f"{self}: {self.shown(value)}"


def parse_tokens(text: str, what: str) -> int:
    """The tokens that ``text`` says, ``8192`` or ``8k``; UsageError for anything else.

    >>> parse_tokens("32k", "x"), parse_tokens("1.5K", "x")
    (32768, 1536)
    """
    found = _TOKENS.fullmatch(text.strip())
    tokens = int(float(found[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20}[found[2].lower()]) if found else 0
    if not 1 <= tokens <= 1 << 40:
        raise UsageError(f"{what}: '{short(text)}' is no number of tokens.", "Write it as in 8192 or 8k (8 x 1,024).")
    return tokens


def parse_goal(text: str) -> Goal:
    """The goal that ``text`` says; UsageError where it is none."""
    found = _GOAL.fullmatch(text.strip())
    wrong = UsageError(f"--goal {short(text)}: that is no goal.", f"Write {_FORMS}.")
    if found is None:
        raise wrong
    kind, count, length = found["kind"], found["count"], found["length"]
    if kind == "throughput":
        if count is not None:
            raise wrong
        return Goal(kind)
    if count is None or (length is None) != (kind == "context"):
        raise wrong
    if kind == "context":
        return Goal(kind, parse_tokens(count, "--goal context"))
    if not count.isascii() or not count.isdigit() or not 1 <= int(count) <= 1_000_000:
        raise wrong
    return Goal(kind, parse_tokens(length, "--goal concurrency"), int(count))


def parse_limit(text: str) -> Limit:
    """The limit that ``text`` says; UsageError where it is none."""
    found = _LIMIT.fullmatch(text.strip())
    wrong = UsageError(f"--limit {short(text)}: that is no limit.", f"Write {_LIMITS}.")
    if found is None or found["name"] not in {"ttft", "tpot", "peak", "throughput"}:
        raise wrong
    name, above, value = found["name"], found["sign"].startswith(">"), found["value"]
    if above != (name == "throughput"):
        raise wrong
    if name in {"ttft", "tpot"}:
        lasted = _DURATION.fullmatch(value)
        number = float(lasted[1]) / (1000 if lasted[2] == "ms" else 1) if lasted else 0.0
    elif name == "throughput":
        number = float(value) if re.fullmatch(r"\d{1,9}(\.\d{1,3})?", value) else 0.0
    elif share := _PERCENT.fullmatch(value):
        number = float(share[1]) / 100
        if number > 1:
            raise wrong
    else:
        try:
            number = float(parse_memory(value))
        except KvroomError:
            raise wrong from None
    if number <= 0:
        raise wrong
    return Limit(name, above, number, share=name == "peak" and value.endswith("%"))


def violation(limits: Sequence[Limit], figures: Figures) -> float:
    """How far ``figures`` are beyond the limit that they break most, 0 where all hold."""
    return max((limit.excess(figures) for limit in limits), default=0.0)


def ladder(length: int, start: int = 4096) -> tuple[int, ...]:
    """The lengths on the way to ``length``: 4K, 8K, ... and ``length`` itself.

    >>> ladder(20000), ladder(2048)
    ((4096, 8192, 16384, 20000), (2048,))
    """
    steps = []
    while start < length:
        steps.append(start)
        start *= 2
    return (*steps, length)
