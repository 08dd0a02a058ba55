"""Text with Helm's ``{{ ... }}`` made readable as YAML: each action stands for a value that is not given."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvroom.launches.variables import Word

_ACTION = re.compile(r"\{\{(?P<inside>.*?)\}\}", re.DOTALL)
_CONTROL = re.compile(r"-?\s*(?:if|else|end|range|with|define|template|block|include|toYaml|tpl|/\*|\$\w+\s*:?=)")
_ENDS = re.compile(r"-?\s*(?:end|else|/\*|define|\$\w+\s*:?=)")
_MARK = "kvroom.template."
_MARKED = re.compile(r"kvroom\.template\.(\d+)\.")
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Action:
    """One ``{{ ... }}``: its text and its line."""

    text: str
    line: int
    control: bool
    """Whether it stands alone on its lines and may add, drop or repeat others (``if``, ``range``, ``toYaml``)."""

    @property
    def wants(self) -> str:
        """What it asks for, for people: ``.Values.model``, ``if .Values.gpu``."""
        return " ".join(self.text.strip().strip("-").split())[:_LONGEST]

    @property
    def asks(self) -> bool:
        """Whether it asks for anything: ``end``, comments and assignments do not."""
        return not (self.control and _ENDS.match(self.text))


def masked(text: str, first_line: int) -> tuple[str, tuple[Action, ...]]:
    """``text`` with its actions taken out, line for line, and the actions.

    An action alone on a line leaves an empty line, one inside a line a word that ``unmasked`` finds again.
    """
    actions: list[Action] = []
    pieces: list[str] = []
    at, line = 0, first_line
    for match in _ACTION.finditer(text):
        start, end = match.span()
        line += text.count("\n", at, start)
        breaks = "\n" * match.group().count("\n")
        alone = _stands_alone(text, start, end)
        control = alone and _CONTROL.match(match["inside"].strip()) is not None
        pieces += [text[at:start], breaks if alone else f"{_MARK}{len(actions)}.{breaks}"]
        actions.append(Action(match["inside"], line, control))
        at, line = end, line + len(breaks)
    return "".join([*pieces, text[at:]]), tuple(actions)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether nothing else stands on the lines of an action."""
    before = text[text.rfind("\n", 0, start) + 1 : start]
    stop = text.find("\n", end)
    after = text[end : stop if stop >= 0 else len(text)]
    return not before.strip() and not after.strip()


def unmasked(text: str, actions: tuple[Action, ...]) -> Word:
    """``text`` with its actions as they were written, which are what is unknown about it."""
    if _MARK not in text:
        return Word(text)
    unknown: list[str] = []

    def written(match: re.Match[str]) -> str:
        action = actions[int(match[1])] if int(match[1]) < len(actions) else None
        shown = "{{ " + (action.wants if action else "?") + " }}"
        unknown.append(shown)
        return shown

    return Word(_MARKED.sub(written, text), tuple(dict.fromkeys(unknown)))
