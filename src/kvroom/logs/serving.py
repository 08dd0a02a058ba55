"""The statistics that a serving engine logs every few seconds, folded as they come.

A log can hold hundreds of thousands of these lines, so one of them costs one match and a few comparisons;
a ``Moment`` is only made of a line that is worth keeping.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NUMBER = rb"([\d.]{1,20})"
_COUNT = rb"(\d{1,9})"
_RATES = rb"Avg prompt throughput: " + _NUMBER + rb" tokens/s, Avg generation throughput: " + _NUMBER + rb" tokens/s, "
_REQUESTS = (
    rb"Running: " + _COUNT + rb" reqs, (?:Waiting|Swapped: " + _COUNT + rb" reqs, Pending): " + _COUNT + rb" reqs,?"
    rb"(?: Deferred: " + _COUNT + rb" reqs,)?(?: KV fetch: [\w ,]{1,120}?,)??(?: Preemptions: " + _COUNT + rb",)?"
    rb"(?: \w{1,12} KV cache usage: " + _NUMBER + rb"%)?"
)
_FULL_LINE = re.compile(_RATES + _REQUESTS)
"""Every form of the line: V0, V1 without a comma (0.7.1), with the parts that later releases add."""
_SHORT_LINE = re.compile(rb"()()" + _REQUESTS)
"""The same without its beginning, as people paste it."""
_USAGE = re.compile(rb"KV cache usage: " + _NUMBER + rb"%")
_PREEMPTIONS = re.compile(rb"Preemptions: " + _COUNT)
_HITS = re.compile(rb"Prefix cache hit rate: " + _NUMBER + rb"%")
_REST = 600
"""Bytes of a line's rest that are searched where it holds a part that is not known."""
_FULL_FORM, _SHORT_FORM = b"Avg prompt throughput: ", b"Running: "
_ENGINE = b"Engine "
_NAME = len(b"Engine 000: ")
FULL = 95.0
"""Percent of KV cache use from which a pool is full: a running request needs blocks ahead."""
IDLE = 50.0


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of statistics."""

    line: int
    prompt_tps: float
    generation_tps: float
    running: int
    waiting: int
    """All that wait, also what V0 swapped out."""
    kv_percent: float | None
    preemptions: int
    """Since the line before."""
    prefix_percent: float | None
    deferred: int = 0
    """Those of ``waiting`` that wait for something else than room: a transfer, an adapter, a grammar."""


@dataclass(slots=True)
class Row:
    """Lines of one engine in which requests wait or run and nothing happens, without a break until now."""

    first: Moment
    count: int = 1


@dataclass(slots=True)
class Load:
    """All lines of statistics together."""

    count: int = 0
    first: Moment | None = None
    busiest: Moment | None = None
    """The moment with the highest use of the KV cache."""
    most_running: int = 0
    most_waiting: int = 0
    best_generation: float = 0.0
    preemptions: int = 0
    full_and_waiting: int = 0
    """Lines with a full KV cache and requests waiting for room."""
    idle_and_waiting: int = 0
    """Lines with room in the KV cache, requests running and more waiting."""
    idle_running: int = 0
    """The most requests that ran in one of the lines of ``idle_and_waiting``."""
    idle_at_most: int = 0
    """How many of these lines show exactly ``idle_running``."""
    evidence: dict[str, Moment] = field(default_factory=dict)
    """The first moment of each kind: ``full_and_waiting``, ``idle_and_waiting``, ``preemptions``."""
    _rows: dict[bytes, Row] = field(default_factory=dict)
    _frozen: dict[bytes, Row] = field(default_factory=dict)
    _latest: tuple[int, bytes] | None = None

    @property
    def last(self) -> Moment | None:
        """The last line of statistics."""
        return read_moment(*self._latest) if self._latest else None

    @property
    def stuck(self) -> int:
        """Lines with requests waiting and nothing happening, unbroken to the last line of their engine."""
        return self._longest.count if self._longest else 0

    @property
    def frozen(self) -> Row | None:
        """The longest row of lines with requests running and no token computed, unbroken to the last line."""
        return max(self._frozen.values(), key=lambda row: row.count, default=None)

    @property
    def stuck_since(self) -> Moment | None:
        """The first of the lines that ``stuck`` counts."""
        return self._longest.first if self._longest else None

    @property
    def _longest(self) -> Row | None:
        return max(self._rows.values(), key=lambda row: row.count, default=None)

    def add(self, line: int, raw: bytes) -> None:
        """Fold in one line of statistics; a line that is none is left out."""
        at = raw.find(_FULL_FORM)
        found = _match(raw, at)
        if found is None:
            return
        prompt, generation, ran, swapped, pending, deferred, preempted, used = found.groups()
        if used is None:
            used, preempted = _unknown_order(raw, found.end(), preempted)
        try:
            read, made = float(prompt or 0), float(generation or 0)
            use = None if used is None else float(used)
        except ValueError:
            return
        running, waiting = int(ran), int(pending)
        if swapped is not None:
            waiting += int(swapped)
        self._latest = (line, raw)
        self.count += 1
        if self.first is None:
            self.first = read_moment(line, raw)
        self.most_running = max(self.most_running, running)
        self.most_waiting = max(self.most_waiting, waiting)
        self.best_generation = max(self.best_generation, made)
        if preempted is not None and int(preempted):
            self.preemptions += int(preempted)
            self._note("preemptions", line, raw)
        if use is not None and (self.busiest is None or use > (self.busiest.kv_percent or 0.0)):
            self.busiest = read_moment(line, raw)
        held_up = waiting if deferred is None else waiting - int(deferred)
        if held_up > 0 and running:
            self._held_up(line, raw, running, use)
        if held_up > 0 and not running and prompt and not read and not made:
            self._nothing_happens(self._rows, line, raw, at)
        elif self._rows:
            self._rows.pop(_engine(raw, at), None)
        if running and prompt and not read and not made:
            self._nothing_happens(self._frozen, line, raw, at)
        elif self._frozen:
            self._frozen.pop(_engine(raw, at), None)

    def _held_up(self, line: int, raw: bytes, running: int, use: float | None) -> None:
        """Requests wait while others run: is it for room?"""
        if use is None:
            return
        if use >= FULL:
            self.full_and_waiting += 1
            self._note("full_and_waiting", line, raw)
        elif use < IDLE:
            self.idle_and_waiting += 1
            self._note("idle_and_waiting", line, raw)
            if running > self.idle_running:
                self.idle_running, self.idle_at_most = running, 0
            self.idle_at_most += running == self.idle_running

    @staticmethod
    def _nothing_happens(rows: dict[bytes, Row], line: int, raw: bytes, at: int) -> None:
        """Requests wait or run, and no token was computed since the line before."""
        engine = _engine(raw, at)
        row = rows.get(engine)
        if row is not None:
            row.count += 1
        elif (moment := read_moment(line, raw)) is not None:
            rows[engine] = Row(moment)

    def _note(self, kind: str, line: int, raw: bytes) -> None:
        if kind not in self.evidence and (moment := read_moment(line, raw)) is not None:
            self.evidence[kind] = moment


def read_moment(line: int, raw: bytes) -> Moment | None:
    """The statistics in a line, None where it holds none."""
    found = _match(raw, raw.find(_FULL_FORM))
    if found is None:
        return None
    prompt, generation, ran, swapped, pending, deferred, preempted, used = found.groups()
    if used is None:
        used, preempted = _unknown_order(raw, found.end(), preempted)
    hits = _HITS.search(raw, found.end(), found.end() + _REST)
    try:
        return Moment(
            line,
            float(prompt or 0),
            float(generation or 0),
            int(ran),
            int(pending) + int(swapped or 0),
            None if used is None else float(used),
            int(preempted or 0),
            None if hits is None else float(hits[1]),
            int(deferred or 0),
        )
    except ValueError:
        return None


def _match(raw: bytes, at: int) -> re.Match[bytes] | None:
    """The line's statistics from ``at``, else in the short form that pastes keep."""
    if at >= 0:
        return _FULL_LINE.match(raw, at)
    at = raw.find(_SHORT_FORM)
    return _SHORT_LINE.match(raw, at) if at >= 0 else None


def _unknown_order(raw: bytes, end: int, preempted: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Use and preemptions of a line with a part that is not known, searched for one by one."""
    used = _USAGE.search(raw, end, end + _REST)
    count = None if preempted is not None else _PREEMPTIONS.search(raw, end, end + _REST)
    return used[1] if used else None, count[1] if count else preempted


def _engine(raw: bytes, at: int) -> bytes:
    """Which of several engines a line is of, e.g. ``Engine 001: ``; empty where it names none."""
    name = raw[max(0, at - _NAME) : max(0, at)]
    return name if name.startswith(_ENGINE) else b""
