"""One fast pass over a log: the lines that may hold a message, start by start, in bounded memory."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick

from kvroom.logs.messages import catalogue
from kvroom.logs.serving import Load

KEPT_STARTS = 20
"""Starts of one file that are read in full: the last ones."""
_HEAD, _TAIL = 6000, 3000
"""Lines of one start that are kept: the first and the last."""
_LONGEST = 64_000
"""Bytes of a line that are looked at around a message."""
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
    tail: deque[Candidate] = field(default_factory=lambda: deque(maxlen=_TAIL))
    load: Load = field(default_factory=Load)
    statuses: Counter[int] = field(default_factory=Counter)
    opened: bool = False
    started: bool = False
    closed: bool = False
    ending: str = ""
    """The last line that is not empty."""

    def add(self, candidate: Candidate) -> None:
        """Keep a line, unless the middle of a long log is reached."""
        (self.head if len(self.head) < _HEAD else self.tail).append(candidate)

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
            if message.role == "error" and message.id != "exception":
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
                current.last_line = line - 1
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
            start_of = piece.rfind(b"\n", 0, start) + 1
            start_of = max(start_of, piece.rfind(b"\r", start_of, start) + 1)
            start_of = max(start_of, start - _LONGEST)
            end_of = piece.find(b"\n", end)
            end_of = min(len(piece) if end_of < 0 else end_of, end + _LONGEST)
            turn = piece.find(b"\r", end, end_of)
            end_of = end_of if turn < 0 else turn
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
