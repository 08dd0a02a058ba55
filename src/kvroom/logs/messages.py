"""The messages that a log can hold (``data/vllm/messages.toml``): templates, compiled when first needed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

_INT = r"-?\d{1,15}(?:,\d{3}){0,5}"
_NUM = r"-?\d{1,15}(?:,\d{3}){0,5}(?:\.\d{1,15})?"
_KINDS = {
    "int": _INT,
    "num": _NUM,
    "size": _NUM + r"\s?(?:bytes|[KMGT]i?B)",
    "word": r"[^\s,;)'\"`]{1,300}",
    "words": r"[\w ./+-]{1,60}?",
    "dtype": r"[\w.]{1,40}",
    "text": r".{1,300}?",
    "rest": r".{1,60000}",
    "list": r"[\[({].{0,2000}?[\])}]",
    "dict": r"\{.{0,60000}\}",
}
"""What stands for a value; every repetition is bounded, so that no line takes long."""
_TOKEN = re.compile(
    r"\{(?P<name>\w+):(?P<kind>\w+)\}|<(?P<choice>[^<>]*)>(?P<maybe>\??)|(?P<blank>\s+)|(?P<text>[^{<\s]+|.)"
)
_LEAST_ANCHOR = 3
_SHORT = 4000
"""Characters of a line that is searched as a whole, and what can stand before an anchor."""
_ANCHORS = 5
"""Places of an anchor in a longer line that are looked at."""
WEAK = frozenset({"exception", "bare", "err_library", "err_permission"})
"""Errors that a healthy start may print too and go on: believed where nothing more specific is there."""
_IN_GIB = re.compile(r"\{(\w+):num\}(?:/\{(\w+):num\})?\)?(?:\s?(?:GiB|GB|<GB\|GiB>|G<i\|I>b)|< GiB>)")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One wording of a message."""

    template: str
    anchor: str
    """A literal that every line with the message holds; empty for what people tell."""

    def regex(self) -> re.Pattern[str]:
        """The compiled wording."""
        return _compiled(self.template)

    def window(self, text: str, start: int, end: int) -> tuple[int, int]:
        """The part of a long ``text`` in which the wording can stand: around the first places of its anchor.

        Whoever repeats the beginning of a message a thousand times in one line must not make it slow.
        """
        if end - start <= _SHORT:
            return start, end
        at = text.find(self.anchor, start, end) if self.anchor else -1
        if at < 0:
            return start, start + _SHORT
        start = max(start, at - _SHORT)
        for _ in range(_ANCHORS):
            at = text.find(self.anchor, at + 1, end)
            if at < 0:
                return start, end
        return start, at


@dataclass(frozen=True)
class Message:
    """One thing that is printed, in all its wordings."""

    id: str
    stage: str
    role: str
    """``reached``, ``passed``, ``error``, ``symptom``, ``noise``, ``part``, or empty for a plain fact."""
    patterns: tuple[Pattern, ...]
    unless: str = ""
    """Another message that holds all that this one does: where that is found, this is not."""
    told: bool = False
    """How people write it, not how vLLM prints it."""
    whole: bool = False
    """Whether the line holds nothing else."""

    @cached_property
    def in_gib(self) -> frozenset[str]:
        """The values that are printed in GiB, which vLLM calls GB at times."""
        found = (name for pattern in self.patterns for name in _IN_GIB.findall(pattern.template))
        return frozenset(name for names in found for name in names if name)

    def find(self, text: str, start: int = 0, end: int | None = None) -> dict[str, str] | None:
        """The values of the message in ``text``, None where it is not there."""
        for pattern in self.patterns:
            found = pattern.regex().search(text, *pattern.window(text, start, len(text) if end is None else end))
            if found and (not self.whole or found[0] == text.strip()):
                return {name: value.rstrip(".:") for name, value in found.groupdict().items() if value is not None}
        return None


@dataclass(frozen=True)
class Catalogue:
    """All messages, and which of them an anchor may stand for."""

    messages: tuple[Message, ...]
    by_id: Mapping[str, Message] = field(default_factory=dict)

    @cached_property
    def anchors(self) -> tuple[str, ...]:
        """Every anchor once, in a fixed order."""
        return tuple(self._by_anchor)

    @cached_property
    def _by_anchor(self) -> dict[str, tuple[Message, ...]]:
        found: dict[str, list[Message]] = {}
        for message in self.messages:
            if message.told:
                continue
            for anchor in dict.fromkeys(pattern.anchor for pattern in message.patterns):
                found.setdefault(anchor, []).append(message)
        return {anchor: tuple(messages) for anchor, messages in found.items()}

    @cached_property
    def told(self) -> tuple[Message, ...]:
        """What people write in a ticket; searched for without anchors, since its words are common."""
        return tuple(message for message in self.messages if message.told)

    def behind(self, number: int) -> tuple[Message, ...]:
        """The messages that hold anchor ``number``."""
        return self._by_anchor[self.anchors[number]]


@cache
def catalogue() -> Catalogue:
    """The packaged messages."""
    data = tomllib.loads((files("kvroom.data.vllm") / "messages.toml").read_text("utf-8"))
    messages = tuple(
        _message(section, name, entry) for section, entries in data.items() for name, entry in entries.items()
    )
    return Catalogue(messages, {message.id: message for message in messages})


def _message(section: str, name: str, entry: Mapping[str, Any]) -> Message:
    texts = _listed(entry["text"])
    anchors = _listed(entry.get("anchor", []))
    told = section == "told"
    patterns = [Pattern(text, anchor) for text in texts for anchor in ([""] if told else _anchors(text, anchors))]
    stage = str(entry.get("stage", section))
    role, unless = str(entry.get("role", "")), str(entry.get("unless", ""))
    return Message(name, stage, role, tuple(patterns), unless, told, bool(entry.get("whole")))


def _anchors(text: str, given: list[str]) -> list[str]:
    """What to search for: of the given anchors those that are literally in ``text``, else all; its own without any."""
    return [anchor for anchor in given if anchor.strip() in text] or given or [anchor_of(text)]


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def anchor_of(template: str) -> str:
    """The longest literal piece of ``template``; a capital at its very start may be missing in a paste."""
    pieces, at_start = [""], True
    for token in _TOKEN.finditer(template):
        literal = token["text"] or (" " if token["blank"] else None)
        if literal is None:
            pieces.append("")
        else:
            capital = at_start and literal[:1].isupper() and literal[1:2].islower()
            pieces[-1] += literal[1:] if capital else literal
        at_start = False
    longest = max((piece.strip() for piece in pieces), key=len)
    if len(longest) < _LEAST_ANCHOR:
        raise ValueError(f"the message '{template}' has no literal to search for")
    return longest


@cache
def _compiled(template: str) -> re.Pattern[str]:
    return re.compile("".join(_parts(template)), re.IGNORECASE)


def _parts(template: str) -> Iterator[str]:
    for token in _TOKEN.finditer(template):
        if token["name"]:
            yield f"(?P<{token['name']}>{_KINDS[token['kind']]})"
        elif token["choice"] is not None:
            choices = "|".join("".join(_parts(choice)) for choice in token["choice"].split("|"))
            yield f"(?:{choices}){token['maybe']}"
        elif token["blank"]:
            yield r"\s{1,40}"
        else:
            yield re.escape(token["text"])
