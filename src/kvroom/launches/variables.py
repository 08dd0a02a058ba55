"""Putting a script's own variables into words. Nothing is run: ``$(...)`` and unset names stay unknown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvroom.errors import UsageError
from kvroom.launches.shell import Part, RawWord

_EXPANSION = re.compile(
    r"\\(?P<escaped>[$`\"\\\n])"
    r"|\$\{(?P<braced>[^{}]*(?:\{[^{}]*\}[^{}]*)*)\}"
    r"|\$(?P<name>[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])"
    r"|\$(?P<command>\((?:[^()]|\([^()]*\))*\)?)"
    r"|(?P<tick>`[^`]*`?)",
    re.DOTALL,
)
_BRACED = re.compile(
    r"(?P<length>#)?(?P<name>[A-Za-z_][A-Za-z0-9_]*|[0-9@*])(?P<index>\[[@*]\])?(?:(?P<operator>:?[-=?+])(?P<word>.*))?",
    re.DOTALL,
)
_LONGEST_WORD = 1_000_000
_MOST_PUT_IN = 4_000_000
"""Characters that all variables of a text may expand to: a few lines that double a value make billions."""
_MOST_UNKNOWN = 8
_DEEPEST = 20
_HIDDEN = str.maketrans(" \t\n", "\ue000\ue001\ue002")
"""Blanks inside of what is not known, such as ``$(shuf -i 1-2)``, do not end a word."""
_SHOWN = str.maketrans("\ue000\ue001\ue002", " \t\n")
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<plus>\+)?=")


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its variables put in."""

    text: str
    unknown: tuple[str, ...] = ()
    """What could not be put in: names of unset variables, or commands in ``$(...)``."""
    arguments: bool = False
    """The word was the script's own arguments (``"$@"``), which nobody knows here."""


@dataclass(slots=True)
class Variables:
    """The variables of a script while it is read."""

    values: dict[str, Word] = field(default_factory=dict)
    arrays: dict[str, tuple[Word, ...]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    export_all: bool = False
    put_in: list[int] = field(default_factory=lambda: [0])
    """Characters put in so far, as the one element; copies share it."""

    def copy(self) -> Variables:
        """The same variables, to be changed for one command only."""
        return Variables(dict(self.values), dict(self.arrays), set(self.exported), self.export_all, self.put_in)

    @classmethod
    def of(cls, known: Mapping[str, str]) -> Variables:
        """Variables that are set before the text begins."""
        return cls({name: Word(value) for name, value in known.items()})

    def environment(self) -> dict[str, str]:
        """What an exported variable passes on, where it is known."""
        return {n: w.text for n in sorted(self.exported) if (w := self.values.get(n)) and not w.unknown}

    def assign(self, word: RawWord) -> bool:
        """Carry out ``NAME=value``, ``NAME+=value`` or ``NAME=(...)``; False for any other word."""
        match = ASSIGNMENT.match(word.parts[0].text) if word.parts and word.parts[0].kind == "plain" else None
        if match is None:
            return False
        name = match["name"]
        if word.array is not None:
            added = tuple(expanded for element in word.array for expanded in self.expand(element))
            self.arrays[name] = (*self.arrays.get(name, ()), *added) if match["plus"] else added
            return True
        rest = RawWord([Part("plain", word.parts[0].text[match.end() :]), *word.parts[1:]])
        value = self.join(rest)
        if match["plus"]:
            before = self.values.get(name, Word(""))
            value = _word(before.text + value.text, [*before.unknown, *value.unknown])
        self.values[name] = value
        if self.export_all:
            self.exported.add(name)
        return True

    def join(self, word: RawWord) -> Word:
        """``word`` as one word, without splitting (as in an assignment)."""
        texts: list[str] = []
        unknown: list[str] = []
        for part in word.parts:
            if part.kind == "single":
                texts.append(part.text)
            else:
                text, missing = self._put_in(part.text, part.kind == "double", 0)
                texts.append(text)
                unknown += missing
        return _word("".join(texts), unknown)

    def expand(self, word: RawWord) -> list[Word]:
        """``word`` with its variables put in; an unquoted value that has blanks becomes several words."""
        whole = self._whole_list(word)
        if whole is not None:
            return whole
        words: list[Word] = []
        text = ""
        unknown: list[str] = []
        started = False
        for part in word.parts:
            if part.kind != "plain" or ("$" not in part.text and "`" not in part.text):
                piece = part.text
                missing: list[str] = []
                if part.kind == "double":
                    piece, missing = self._put_in(part.text, True, 0)
                text += piece
                unknown += missing
                started = started or part.kind != "plain" or bool(piece)
                continue
            piece, missing = self._put_in(part.text, False, 0)
            unknown += missing
            fields = piece.split()
            if not fields:
                continue
            if piece[0].isspace() and started:
                words.append(_word(text, unknown))
                text, unknown = "", []
            for inner in fields[:-1]:
                words.append(_word(text + inner, unknown))
                text, unknown = "", []
            text += fields[-1]
            started = True
            if piece[-1].isspace():
                words.append(_word(text, unknown))
                text, unknown, started = "", [], False
        if started or unknown:
            words.append(_word(text, unknown))
        return words

    def _whole_list(self, word: RawWord) -> list[Word] | None:
        """The elements when ``word`` is just ``"$@"`` or ``"${NAME[@]}"``, else None."""
        if len(word.parts) != 1 or not word.parts[0].text.startswith("$"):
            return None
        text = word.parts[0].text.removeprefix("$").removeprefix("{").removesuffix("}")
        if text in ("@", "*"):
            return list(self.arrays["@"]) if "@" in self.arrays else [Word("", (), True)]
        name = text.removesuffix("[@]").removesuffix("[*]")
        if name != text and name in self.arrays:
            for element in self.arrays[name]:
                self._count(element.text)
            return list(self.arrays[name])
        return None

    def _count(self, text: str) -> str:
        """``text``, which a variable puts in. Raises UsageError when all of them put in too much."""
        self.put_in[0] += len(text) + 1
        if self.put_in[0] > _MOST_PUT_IN:
            raise UsageError(
                f"The variables of the text expand to more than {_MOST_PUT_IN:,} characters.",
                "Give the command with its values written out.",
            )
        return text

    def _put_in(self, text: str, quoted: bool, depth: int) -> tuple[str, list[str]]:
        """``text`` with values in place of names, and what stayed unknown."""
        if "$" not in text and "`" not in text and not (quoted and "\\" in text):
            return text, []
        unknown: list[str] = []

        def one(match: re.Match[str]) -> str:
            if match["escaped"] is not None:
                return "" if match["escaped"] == "\n" else match["escaped"]
            written = match.group() if quoted else match.group().translate(_HIDDEN)
            if match["command"] is not None or match["tick"] is not None:
                unknown.append(match.group()[:60])
                return written
            if match["name"] is not None:
                return self._value(match["name"], written, unknown)
            return self._braced(match["braced"], written, unknown, depth)

        return _EXPANSION.sub(one, text), unknown

    def _value(self, name: str, written: str, unknown: list[str]) -> str:
        word = self.values.get(name)
        if word is None and name in self.arrays:
            word = self.arrays[name][0] if self.arrays[name] else Word("")
        if word is None:
            unknown.append(name)
            return written
        unknown += word.unknown
        return written if word.unknown else self._count(word.text)

    def _braced(self, inside: str, written: str, unknown: list[str], depth: int) -> str:
        match = _BRACED.fullmatch(inside)
        if match is None or match["length"] or depth > _DEEPEST:
            unknown.append(written.translate(_SHOWN))
            return written
        name, operator = match["name"], match["operator"] or ""
        if match["index"]:
            if name not in self.arrays:
                unknown.append(name)
                return written
            return " ".join(self._count(word.text) for word in self.arrays[name])
        known = self.values.get(name)
        is_set = known is not None and not (operator.startswith(":") and not known.text and not known.unknown)
        kind = operator[-1:]
        if kind == "+":
            if not is_set:
                return ""
        elif is_set or kind not in ("-", "="):
            return self._value(name, written, unknown)
        text, missing = self._put_in(_unquote(match["word"] or ""), True, depth + 1)
        unknown += missing
        if kind == "=":
            self.values[name] = _word(text, missing)
        return text


def _word(text: str, unknown: list[str]) -> Word:
    """A word of bounded size, with its blanks shown again."""
    return Word(text[:_LONGEST_WORD].translate(_SHOWN), tuple(dict.fromkeys(unknown))[:_MOST_UNKNOWN])


def _unquote(text: str) -> str:
    """``text`` without the quotes around it, as in ``${X:-"a b"}``."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text
