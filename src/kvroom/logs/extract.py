"""From candidate lines to facts, also where a paste has cut lines in the middle of a sentence or a word."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from operator import itemgetter

from kvroom.logs.facts import Fact, Facts
from kvroom.logs.messages import Message, catalogue
from kvroom.logs.peel import Line, peel
from kvroom.logs.scan import Candidate, anchors_in

_ECHO = ("raise ", 'f"', "f'", '"', "'", "assert ", "return ", "logger.", "^", "~")
"""How a line of source code begins that a traceback shows: its words are not what happened."""
_COMMENT = re.compile(r"\s{0,20}# (?!\w{1,20} blocks)")
"""A remark of whoever keeps the log; older engines begin their count of blocks so as well."""
_GENERIC = frozenset({"exception", "bare", "frame"})
_AROUND = 3000
_TRIES = 40
"""Places where a message is looked for in joined lines."""


def facts_of(candidates: Iterable[Candidate]) -> list[Fact]:
    """The facts in the lines that hold an anchor."""
    found: list[Fact] = []
    for candidate in candidates:
        line = peel(candidate.raw.decode("utf-8", "replace"), candidate.number)
        found += _facts_in(line, candidate.anchors)
    return found


def with_joined(text: bytes, first_line: int, last_line: int, facts: Sequence[Fact]) -> Facts:
    """``facts`` and those that only show when the lines of a small log are joined, with a blank or with nothing."""
    own = text.decode("utf-8", "replace").split("\n")[first_line - 1 : last_line]
    lines = [peel(raw, number) for number, raw in enumerate(own, first_line)]
    lines = [line for line in lines if not _is_echo(line.text) and not _COMMENT.match(line.text)]
    known = {fact.id for fact in facts}
    more = [fact for line in lines if not line.level for fact in _told_in(line)]
    for glue in (" ", ""):
        joined = _in_joined(lines, glue, known)
        found = [fact for fact in joined if fact.id not in known and catalogue().by_id[fact.id].unless not in known]
        more += found
        known |= {fact.id for fact in found}
    if not any(fact.role == "error" for fact in (*facts, *more)):
        more += _echoed(own, first_line)
    return Facts(sorted((*facts, *more), key=lambda fact: fact.line))


def _facts_in(line: Line, anchors: Iterable[int]) -> Iterator[Fact]:
    if _COMMENT.match(line.text):
        return
    echo = _is_echo(line.text)
    seen: set[str] = set()
    for number in dict.fromkeys(anchors):
        for message in catalogue().behind(number):
            if message.id in seen or (echo and message.role in {"error", "symptom"}):
                continue
            values = None if message.unless in seen else message.find(line.text)
            if values is not None:
                seen.add(message.id)
                yield _fact(message, line, line.text, values)


def _told_in(line: Line) -> Iterator[Fact]:
    """What a line says in somebody's own words."""
    for message in catalogue().told:
        values = message.find(line.text[:_AROUND])
        if values is not None:
            yield _fact(message, line, line.text, values)


def _fact(message: Message, line: Line, text: str, values: dict[str, str]) -> Fact:
    return Fact(
        message.id,
        line.number,
        text[:_AROUND],
        values,
        message.stage,
        message.role,
        line.process,
        line.level,
        line.file,
        line.time,
    )


def _is_echo(text: str) -> bool:
    return text.lstrip().startswith(_ECHO)


def _in_joined(lines: Sequence[Line], glue: str, known: Set[str]) -> Iterator[Fact]:
    """The facts of the joined lines that begin in one line and end in a later one; none of the messages ``known``."""
    starts: list[int] = []
    length = 0
    for line in lines:
        starts.append(length)
        length += len(line.text) + len(glue)
    joined = glue.join(line.text for line in lines)
    seen: set[tuple[str, int]] = set()
    tries: Counter[str] = Counter()
    for number, where in _places(joined):
        index = bisect_right(starts, where) - 1
        for message in catalogue().behind(number):
            if message.id in _GENERIC or message.id in known or (message.id, index) in seen:
                continue
            seen.add((message.id, index))
            tries[message.id] += 1
            if tries[message.id] > _TRIES:
                continue
            begin = starts[max(0, index - 2)]
            values = message.find(joined, begin, min(len(joined), where + _AROUND))
            if values is not None:
                yield _fact(message, lines[index], joined[starts[index] : starts[index] + _AROUND].strip(), values)


def _places(text: str) -> Iterator[tuple[int, int]]:
    """The anchors in ``text`` with the character at which each begins."""
    encoded = text.encode("utf-8", "replace")  # JSON can hold half a character
    byte = character = 0
    for number, at, _ in sorted(anchors_in(encoded), key=itemgetter(1)):
        character += len(encoded[byte:at].decode("utf-8", "ignore"))
        byte = at
        yield number, character


def _echoed(lines: Sequence[str], first_line: int) -> Iterator[Fact]:
    """Errors of which only the source line is left that raised them; used where nothing else tells of one."""
    for number, raw in enumerate(lines, first_line):
        line = peel(raw, number)
        bare = line.text.strip()
        if bare.startswith("raise "):
            for anchor in {found for found, _, _ in anchors_in(bare.encode())}:
                for message in catalogue().behind(anchor):
                    values = message.find(bare) if message.role == "error" and message.id not in _GENERIC else None
                    if values is not None:
                        yield _fact(message, line, bare, values)
