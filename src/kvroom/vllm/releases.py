"""vLLM releases: reading a version text and ordering releases."""

from __future__ import annotations

import re
from typing import NamedTuple

from kvroom.errors import UsageError

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.\-+_a-z].*)?$", re.IGNORECASE)


class Release(NamedTuple):
    """A vLLM release as three numbers; development and post builds count as the release they lead to."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_release(text: str) -> Release:
    """The release that ``text`` names: ``0.28.0``, ``v0.28``, ``0.28.1rc1.dev446+g798544433``.

    Raises UsageError when ``text`` is not a version.

    >>> parse_release("v0.28.0-cu130")
    Release(major=0, minor=28, patch=0)
    """
    match = _VERSION.match(text.strip())
    if not match or len(text) > 100:
        raise UsageError(f"'{text[:60]}' is not a vLLM version.", "Write it as in --vllm 0.28.0 (or v0.28.0).")
    major, minor, patch = (int(part or 0) for part in match.groups())
    return Release(major, minor, patch)
