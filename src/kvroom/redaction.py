"""What must never be printed or stored: tokens, keys, credentials in URLs, terminal control codes."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "<redacted>"
_SECRET = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{6,}|sk-[A-Za-z0-9_-]{6,}|gh[pousr]_[A-Za-z0-9]{10,}|AKIA[A-Z0-9]{12,})"
    r"|(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)"
    r"|(?i:(?<=bearer )[A-Za-z0-9._~+/=-]{6,200})"
)
_SECRET_FLAGS = frozenset({"--api-key", "--hf-token", "--ssl-keyfile-password", "--token"})
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """``text`` without secrets and without control characters, fit for a terminal."""
    return _CONTROL.sub("\ufffd", _SECRET.sub(MASK, text))


def clean_command(tokens: Sequence[str]) -> list[str]:
    """A command's tokens with the values of secret flags and everything that looks like a secret masked."""
    cleaned: list[str] = []
    hide = False
    for token in tokens:
        if hide and not token.startswith("--"):
            cleaned.append(MASK)
            continue
        name, equals, _ = token.partition("=")
        hide = name.replace("_", "-") in _SECRET_FLAGS
        cleaned.append(f"{name}={MASK}" if hide and equals else clean(token))
        hide = hide and not equals
    return cleaned
