"""What must never be printed or stored: tokens, keys, credentials in URLs, terminal control codes."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "<redacted>"
_SECRET = re.compile(
    r"\b(?:hf_(?!(?:config|overrides|processor)(?![A-Za-z0-9]))[A-Za-z0-9]{6,}"
    r"|sk-[A-Za-z0-9_-]{6,}|gh[pousr]_[A-Za-z0-9]{10,}|AKIA[A-Z0-9]{12,})"
    r"|(?<=://)[^/\s@]{1,400}(?=@)"
    r"|(?i:(?<=bearer )[A-Za-z0-9._~+/=-]{6,200})"
)
_FLAG = r"--(?:api[-_]k(?:ey?)?|hf[-_]t(?:o(?:k(?:en?)?)?)?|ssl[-_]keyfile[-_]p[a-z]*|token)"
"""The flags whose value is a secret, also as vLLM lets them be shortened."""
_NAMED = re.compile(
    rf"((?<![\w-]){_FLAG}[= ]|\b(?:[A-Z0-9]+_)*(?:TOKEN|KEY|SECRET|PASSWORD)=)"
    rf"(?!'?{MASK}|-)(?:'[^']*'|\"[^\"]*\"|\S+)"
)
"""A secret flag or variable in a text, with its value."""
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Characters that steer a terminal, hide, turn the direction of writing, or are half a character."""
_CONTROL = re.compile(f"(?![\\n\\t]){UNSEEN.pattern}")


def clean(text: str) -> str:
    """``text`` without secrets and without control characters, fit for a terminal."""
    return _CONTROL.sub("\ufffd", _NAMED.sub(rf"\1{MASK}", _SECRET.sub(MASK, text)))


def clean_command(tokens: Sequence[str]) -> list[str]:
    """A command's tokens with the values of secret flags and everything that looks like a secret masked."""
    cleaned: list[str] = []
    hide = False
    for token in tokens:
        if hide and not token.startswith("--"):
            cleaned.append(MASK)
            continue
        name, equals, _ = token.partition("=")
        hide = re.fullmatch(_FLAG, name) is not None
        cleaned.append(f"{name}={MASK}" if hide and equals else clean(token))
        hide = hide and not equals
    return cleaned
