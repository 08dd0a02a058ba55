"""A finding: one recognised problem or useless setting, with its evidence and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from inspect import cleandoc

HEADINGS = ("What it does", "Why it matters", "Example", "What to do", "Since", "References")
"""The headings of every explanation, in this order."""


class Severity(StrEnum):
    """How much a finding matters, the gravest first."""

    ERROR = "error"
    """The launch cannot work like this."""
    WARNING = "warning"
    """It works, but not as the setting suggests."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The text that shows a finding: a flag, or a line of a file."""

    text: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One occurrence of a rule."""

    code: str
    name: str
    severity: Severity
    title: str
    """One sentence with the numbers of this case."""
    why: str
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[str, ...] = ()
    """What to change, each as flags or one short sentence."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a code stands for; ``explanation`` is Markdown under the fixed headings."""

    code: str
    name: str
    severity: Severity
    summary: str
    explanation: str

    def found(
        self,
        title: str,
        why: str = "",
        *,
        evidence: Iterable[Evidence] = (),
        advice: Iterable[str] = (),
        severity: Severity | None = None,
    ) -> Finding:
        """A finding of the rule; ``why`` is the summary unless given, ``severity`` the rule's own."""
        return Finding(
            self.code,
            self.name,
            severity or self.severity,
            title,
            why or self.summary,
            tuple(evidence),
            tuple(advice),
        )


def explanation(*, what: str, why: str, example: str, cure: str, since: str, references: str) -> str:
    """A rule's explanation: six texts in Markdown under the fixed headings, their indentation removed."""
    texts = (what, why, example, cure, since, references)
    return "\n\n".join(f"## {head}\n\n{cleandoc(text)}" for head, text in zip(HEADINGS, texts, strict=True))
