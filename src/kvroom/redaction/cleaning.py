"""``clean``: a text without secrets and without control characters, line by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kvroom.redaction.named import is_secret_flag, left_open, mask_named, mask_next
from kvroom.redaction.tokens import MASK, mask_tokens

UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Characters that steer a terminal, hide, turn the direction of writing, or are half a character."""
_CONTROL = re.compile(f"(?![\\n\\t]){UNSEEN.pattern}")
_ESCAPE = re.compile(r"(?:\x1b\[|\x9b)[0-?]{0,40}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)")
"""Colours, cursor moves and window titles: taken out whole, for a secret may stand right behind one, or around it."""
_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY")
_KEY_LINE = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{40,}+\W{0,4}$")
_KEY_HEADER = re.compile(r"(?:Proc-Type|DEK-Info|Comment|Version): ")
_ROUNDS = 8


def plain(text: str) -> str:
    """``text`` without control characters, with as many lines."""
    return _CONTROL.sub("\ufffd", _ESCAPE.sub("", text).replace("\r\n", "\n"))


def settle(line: str, mask: Callable[[str], str]) -> str:
    """The line masked until nothing changes any more, so that masking it again changes nothing."""
    for _ in range(_ROUNDS):
        masked = mask(line)
        if masked == line:
            break
        line = masked
    return line


def mask_secrets(line: str) -> str:
    """One pass over a line."""
    return mask_named(mask_tokens(line))


class Cleaner:
    """``clean`` over a stream of lines: it remembers what the last line left open, a private key or a value."""

    def __init__(self) -> None:
        self._key: bool | None = None
        """Whether a line of a private key was seen, None outside of one."""
        self._value = False

    def __call__(self, text: str) -> str:
        """``text`` without secrets and without control characters; it keeps its lines."""
        return "\n".join(map(self.line, plain(text).split("\n")))

    def line(self, line: str) -> str:
        """One line without control characters, cleaned."""
        if not line or line.isspace():
            return line
        if self._key is not None or "PRIVATE KEY-" in line:
            line = self._without_key(line)
        if self._value:
            line = mask_next(line)
        settled = settle(line, mask_secrets)
        self._value = left_open(line) or left_open(settled)
        return settled

    def _without_key(self, line: str) -> str:
        """The line without its part of a private key.

        A key ends with its last line, or with the line after its last long one: a log that was cut keeps the rest.
        """
        parts, place = [], 0
        if self._key is not None:
            end = _KEY_END.search(line)
            if end:
                parts, place = [MASK if line[: end.start()].strip() else "", end[0]], end.end()
                self._key = None
            elif _KEY_LINE.search(line):
                self._key = True
                return MASK
            elif self._key or not _KEY_HEADER.search(line):
                last, self._key = self._key, None
                return MASK if last else line
        while begin := _KEY_BEGIN.search(line, place):
            parts.append(line[place : begin.end()])
            place = begin.end()
            end = _KEY_END.search(line, place)
            if not end:
                self._key = False
                if len(line) - place > 16:
                    parts.append(MASK)
                    place = len(line)
                break
            parts += [MASK, end[0]]
            place = end.end()
        return "".join([*parts, line[place:]])


def clean(text: str) -> str:
    """``text`` without secrets and without control characters, fit for a terminal; it keeps its lines."""
    return Cleaner()(text)


def clean_command(tokens: Sequence[str]) -> list[str]:
    """A command's tokens with the values of secret flags and everything that looks like a secret masked."""
    cleaned: list[str] = []
    hide = False
    for token in tokens:
        if hide and not token.startswith("--"):
            cleaned.append(MASK)
            continue
        name, equals, value = token.partition("=")
        hide = is_secret_flag(name)
        cleaned.append(f"{name}={MASK}" if hide and equals else clean(token))
        hide = hide and not value
    return cleaned
