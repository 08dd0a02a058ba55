"""Shell text to commands: quotes, continuations, comments, here-documents, operators. Runs nothing.

This reads the part of POSIX shell and bash that launch scripts are written in. Words keep their parts
(plain, single or double quoted), because variables are put in only when a command is looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from kvroom.errors import UsageError

LONGEST = 250_000
"""Characters of shell text that are read."""

_TOKEN = re.compile(
    r"""
      (?P<continuation>\\\n)
    | (?P<space>[ \t]++)
    | (?P<newline>\n)
    | (?P<redirect>\d*+(?:<<<|<<-?|<>|<&|>>|>\||>&|<|>)|&>>?)
    | (?P<operator>&&|\|\||;;|\|&|[;&|()])
    | (?P<single>'[^']*+')
    | (?P<ansi>\$'(?:[^'\\]++|\\.)*+')
    | (?P<double>"(?:[^"\\]++|\\.)*+")
    | (?P<escape>\\.)
    | (?P<plain>[^\s\\'"`;&|()<>$]++)
    | (?P<dollar>\$)
    | (?P<tick>`[^`]*+`)
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+|[0-9@*#?$!-]")
_CLOSING = re.compile(r"[(){}'\"\\]")


class Part(NamedTuple):
    """A piece of a word: ``plain`` and ``double`` may hold variables, ``single`` is taken as it is."""

    kind: str
    text: str


@dataclass(slots=True)
class RawWord:
    """One word before variables are put in."""

    parts: list[Part] = field(default_factory=list)
    array: list[RawWord] | None = None
    """The elements, for ``NAME=(a b)``."""

    def literal(self) -> str:
        """The word's text with variables as they are written."""
        return "".join(part.text for part in self.parts)


@dataclass(slots=True)
class Command:
    """A simple command: its words and the line on which it begins."""

    words: list[RawWord]
    line: int


class _Reader:
    """One pass over a text; ``commands`` is the result."""

    def __init__(self, text: str, first_line: int) -> None:
        self.text = text
        self.pos = 0
        self.line = first_line
        self.commands: list[Command] = []
        self.words: list[RawWord] = []
        self.word: RawWord | None = None
        self.start_line = first_line
        self.after_redirect = ""
        self.heredocs: list[tuple[str, bool]] = []
        self.array_of: RawWord | None = None

    def read(self) -> list[Command]:
        """All commands of the text."""
        text = self.text
        while self.pos < len(text):
            match = _TOKEN.match(text, self.pos)
            if match is None:
                self._unmatched(text[self.pos])
                continue
            kind = match.lastgroup or ""
            found = match.group()
            if kind == "plain" and found.startswith("#") and self.word is None:
                self._skip_comment()
                continue
            self.pos = match.end()
            if kind in ("space", "continuation"):
                self._end_word() if kind == "space" else None
                self.line += kind == "continuation"
            elif kind == "newline":
                self._end_command()
                self.line += 1
                self._skip_heredocs()
            elif kind == "redirect":
                self._end_word()
                self.after_redirect = found
            elif kind == "operator":
                self._operator(found)
            else:
                self._add(kind, found)
                self.line += found.count("\n")
        self._end_command()
        return self.commands

    def _unmatched(self, char: str) -> None:
        if char in "'\"`":
            raise UsageError(f"Line {self.line}: the quote {char} is never closed.", "Close it.")
        self.pos += 1
        if char != "\\":
            self._end_word()

    def _skip_comment(self) -> None:
        end = self.text.find("\n", self.pos)
        self.pos = len(self.text) if end < 0 else end

    def _add(self, kind: str, found: str) -> None:
        if self.word is None:
            self.word = RawWord()
            if not self.words and self.array_of is None:
                self.start_line = self.line
        parts = self.word.parts
        if kind == "single":
            parts.append(Part("single", found[1:-1]))
        elif kind == "ansi":
            parts.append(Part("single", _unescape(found[2:-1])))
        elif kind == "double":
            parts.append(Part("double", found[1:-1]))
        elif kind == "escape":
            parts.append(Part("single", found[1:]))
        elif kind == "dollar":
            end = _dollar_end(self.text, self.pos, self.line)
            parts.append(Part("plain", "$" + self.text[self.pos : end]))
            self.line += self.text.count("\n", self.pos, end)
            self.pos = end
        else:
            parts.append(Part("plain", found))

    def _end_word(self) -> None:
        word, self.word = self.word, None
        if word is None:
            return
        if self.after_redirect:
            operator, self.after_redirect = self.after_redirect, ""
            if operator.lstrip("0123456789") in ("<<", "<<-"):
                self.heredocs.append((word.literal(), operator.endswith("-")))
        elif self.array_of is not None and self.array_of.array is not None:
            self.array_of.array.append(word)
        else:
            self.words.append(word)

    def _end_command(self) -> None:
        self._end_word()
        self.after_redirect = ""
        if self.array_of is not None:
            return
        if self.words:
            self.commands.append(Command(self.words, self.start_line))
        self.words = []

    def _operator(self, found: str) -> None:
        if found == "(" and self.word is not None and self.word.literal().endswith("="):
            self.array_of, self.word = self.word, None
            self.array_of.array = []
        elif found == ")" and self.array_of is not None:
            self._end_word()
            self.words.append(self.array_of)
            self.array_of = None
        else:
            self._end_command()

    def _skip_heredocs(self) -> None:
        for delimiter, strip in self.heredocs:
            while self.pos < len(self.text):
                end = self.text.find("\n", self.pos)
                end = len(self.text) if end < 0 else end
                row = self.text[self.pos : end]
                self.pos = min(end + 1, len(self.text))
                self.line += 1
                if (row.lstrip("\t") if strip else row) == delimiter:
                    break
        self.heredocs = []


def read_commands(text: str, first_line: int = 1) -> list[Command]:
    """The simple commands of shell ``text``, in order; here-documents are left out.

    Raises UsageError for a quote that is not closed, a NUL character, and a text longer than LONGEST.
    """
    if len(text) > LONGEST:
        raise UsageError(f"The text has {len(text):,} characters.", f"At most {LONGEST:,} are read.")
    if "\0" in text:
        raise UsageError("The text holds NUL characters, so it is not a command.", "Give a text file.")
    return _Reader(text.replace("\r\n", "\n").replace("\r", "\n"), first_line).read()


def _dollar_end(text: str, pos: int, line: int) -> int:
    """Where the expansion that begins with ``$`` at ``pos - 1`` ends."""
    opener = text[pos : pos + 1]
    if opener in ("{", "("):
        closer = {"{": "}", "(": ")"}[opener]
        depth = 0
        quote = ""
        while match := _CLOSING.search(text, pos):
            char = match.group()
            pos = match.end() + (char == "\\")
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char == opener:
                depth += 1
            elif char == closer:
                depth -= 1
                if depth == 0:
                    return pos
        raise UsageError(f"Line {line}: ${opener} is never closed.", f"Close it with {closer}.")
    name = _NAME.match(text, pos)
    return name.end() if name else pos


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


def _unescape(text: str) -> str:
    """The text of ``$'...'``, common escapes only."""
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m.group(1), m.group(0)), text, flags=re.DOTALL)
