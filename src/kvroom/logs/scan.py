"""One fast pass over a log: the lines that may hold a message, start by start, in bounded memory."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick

from kvroom.logs.messages import WEAK, catalogue
from kvroom.logs.serving import Load

KEPT_STARTS = 20
"""Starts of one file that are read in full: the last ones."""
_HEAD, _TAIL = 6000, 3000
"""Lines of one start that are kept: the first and the last."""
_HEAD_BYTES, _TAIL_BYTES = 2_000_000, 1_000_000
"""Bytes that they may have; a real start has a tenth of it."""
_LESS_OF_EARLIER = 8
"""The share of it that is left to a start which another one follows."""
_LONGEST = 64_000
"""Bytes of a line that are looked at around a message."""
_LINE_END = re.compile(rb"[\r\n]")
_STATUS = re.compile(rb'HTTP/1\.1" (\d{3})')
_OPENING = frozenset({"banner", "banner_server", "banner_logo", "args_namespace", "args_non_default"})
_ENGINE = frozenset({"engine_v1", "engine_v0"})
_STARTED = frozenset({"weights", "available", "tokens", "concurrency", "blocks_v0", "blocks_v1", "serving", "split_v0"})


class Candidate(NamedTuple):
    """A line that holds at least one anchor."""

    number: int
    raw: bytes
    anchors: tuple[int, ...]


@dataclass(slots=True)
class Start:
    """What one start left in the log."""

    first_line: int
    last_line: int = 0
    head: list[Candidate] = field(default_factory=list)
    tail: deque[Candidate] = field(default_factory=deque)
    load: Load = field(default_factory=Load)
    statuses: Counter[int] = field(default_factory=Counter)
    opened: bool = False
    started: bool = False
    closed: bool = False
    ending: str = ""
    """The last line that is not empty."""
    _head_bytes: int = 0
    _tail_bytes: int = 0

    def add(self, candidate: Candidate) -> None:
        """Keep a line, unless the middle of a long log is reached."""
        if not self.tail and len(self.head) < _HEAD and self._head_bytes < _HEAD_BYTES:
            self.head.append(candidate)
            self._head_bytes += len(candidate.raw)
        else:
            self.tail.append(candidate)
            self._tail_bytes += len(candidate.raw)
            self._shorten(_TAIL_BYTES)

    def end(self, line: int) -> None:
        """Note the last line of a start that another one follows, and keep less of it."""
        self.last_line = line
        while self.head and self._head_bytes > _HEAD_BYTES // _LESS_OF_EARLIER:
            self._head_bytes -= len(self.head.pop().raw)
        self._shorten(_TAIL_BYTES // _LESS_OF_EARLIER)

    def _shorten(self, most: int) -> None:
        """Let go of the first lines of the tail until it has at most ``most`` bytes."""
        while len(self.tail) > _TAIL or (self._tail_bytes > most and len(self.tail) > 1):
            self._tail_bytes -= len(self.tail.popleft().raw)

    def candidates(self) -> list[Candidate]:
        """The kept lines in order."""
        return [*self.head, *self.tail]


@dataclass(slots=True)
class Scan:
    """The starts of a log, the last one last."""

    starts: deque[Start]
    count: int
    """How many starts there are, also those that are no longer kept."""
    lines: int
    size: int
    """Bytes of text."""
    text: bytes | None
    """The whole log where it is small."""
    sample: str = ""
    """The beginning of the text."""


SMALL = 256_000
"""Bytes of a log, such as a paste, that is also read with its lines joined."""


@cache
def _searcher() -> tuple[BytesAhoCorasick, dict[str, frozenset[int]], int, frozenset[int]]:
    anchors = catalogue().anchors
    ids: dict[str, set[int]] = {"opening": set(), "engine": set(), "started": set()}
    for number in range(len(anchors)):
        for message in catalogue().behind(number):
            for name, group in (("opening", _OPENING), ("engine", _ENGINE), ("started", _STARTED)):
                if message.id in group:
                    ids[name].add(number)
            if message.role == "error" and message.id not in WEAK:
                ids["started"].add(number)
    known = catalogue().by_id
    stats = anchors.index(known["stats"].patterns[0].anchor)
    rejected = frozenset(anchors.index(pattern.anchor) for pattern in known["rejected"].patterns)
    searcher = BytesAhoCorasick([anchor.encode() for anchor in anchors])
    return searcher, {name: frozenset(group) for name, group in ids.items()}, stats, rejected


def anchors_in(text: bytes) -> list[tuple[int, int, int]]:
    """The anchors in ``text``: number, start and end of each."""
    return _searcher()[0].find_matches_as_indexes(text, overlapping=True)


def scan(pieces: Iterable[bytes]) -> Scan:
    """The candidates of every start in ``pieces``, which end at lines."""
    starts: deque[Start] = deque([Start(1)], maxlen=KEPT_STARTS)
    count, line, size, sample = 1, 1, 0, ""
    kept: list[bytes] | None = []
    for piece in pieces:
        sample = sample or piece[:4000].decode("utf-8", "replace")
        size += len(piece)
        if kept is not None:
            kept.append(piece)
            kept = kept if size <= SMALL else None
        at = 0
        for start_of, end_of, anchors in _lines_with_anchors(piece):
            line += piece.count(b"\n", at, start_of)
            at = start_of
            current = starts[-1]
            if _begins_anew(current, anchors, piece[start_of:end_of]):
                current.end(line - 1)
                current = Start(line)
                starts.append(current)
                count += 1
            _take(current, Candidate(line, piece[start_of:end_of], anchors))
        line += piece.count(b"\n", at)
        starts[-1].ending = _last_line(piece) or starts[-1].ending
        ends_open = not piece.endswith(b"\n")
        starts[-1].last_line = line if ends_open else line - 1
    total = starts[-1].last_line
    return Scan(starts, count, total, size, b"".join(kept) if kept is not None else None, sample)


def _lines_with_anchors(piece: bytes) -> Iterable[tuple[int, int, tuple[int, ...]]]:
    """Start, end and anchors of each line of ``piece`` that has any; a carriage return ends a line as well."""
    end_of, start_of = -1, 0
    found: list[int] = []
    for number, start, end in anchors_in(piece):
        if start >= end_of:
            if found:
                yield start_of, end_of, tuple(found)
            start_of = max(end_of, start - _LONGEST, 0)  # never back into what was looked at: costs stay linear
            start_of = max(start_of, piece.rfind(b"\n", start_of, start) + 1)
            start_of = max(start_of, piece.rfind(b"\r", start_of, start) + 1)
            line_end = _LINE_END.search(piece, end, end + _LONGEST)
            end_of = line_end.start() if line_end else min(len(piece), end + _LONGEST)
            found = []
        found.append(number)
    if found:
        yield start_of, end_of, tuple(found)


def _begins_anew(current: Start, anchors: tuple[int, ...], raw: bytes) -> bool:
    """Whether a line with ``anchors`` opens another start than the current one."""
    if not current.started:
        return False
    groups = _searcher()[1]
    if not groups["opening"].isdisjoint(anchors):
        return True
    return not groups["engine"].isdisjoint(anchors) and (not current.opened or current.closed) and b"_DP" not in raw


def _take(current: Start, candidate: Candidate) -> None:
    _, groups, stats, rejected = _searcher()
    if stats in candidate.anchors:
        current.load.add(candidate.number, candidate.raw)
        if current.load.count > 3:
            return
    if not rejected.isdisjoint(candidate.anchors):
        status = _STATUS.search(candidate.raw)
        if status:
            current.statuses[int(status[1])] += 1
        if len(candidate.anchors) == 1:
            return
    current.opened = current.opened or not groups["opening"].isdisjoint(candidate.anchors)
    current.started = current.started or not groups["started"].isdisjoint(candidate.anchors)
    current.add(candidate)


def _last_line(piece: bytes) -> str:
    for raw in reversed(piece[-4000:].splitlines()):
        if raw.strip():
            return raw.decode("utf-8", "replace")
    return ""
