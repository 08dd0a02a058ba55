"""The environment variables that vLLM reads, by release, and what replaced those that are gone.

The facts are ``data/vllm/environment.json``, read from every Python file of 28 releases. Releases
between two of them are given the benefit of the doubt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kvroom.vllm.releases import Release, parse_release


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: the last release read without it, and the last one with it; None where that is open."""

    name: str
    absent_until: Release | None
    last: Release | None

    def gone(self, release: Release) -> bool:
        """Whether ``release`` surely no longer reads it. Variables go with a minor release."""
        return self.last is not None and release[:2] > self.last[:2]

    def missing(self, release: Release) -> bool:
        """Whether ``release`` surely does not read it yet."""
        return self.absent_until is not None and release <= self.absent_until


@cache
def _data() -> Any:
    return json.loads(files("kvroom.data.vllm").joinpath("environment.json").read_text("utf-8"))


@cache
def variables() -> dict[str, Variable]:
    """Every variable that some release reads, by name."""
    return {
        name: Variable(name, parse_release(absent) if absent else None, parse_release(last) if last else None)
        for name, (absent, last) in _data()["variables"].items()
    }


def instead(name: str) -> str | None:
    """What to do now in place of a variable or ``--flag`` that is gone: a sentence, or None."""
    text: str | None = _data()["instead"].get(name)
    return text


def earlier(option: str) -> str | None:
    """What to do in releases that do not have ``option`` yet: a sentence, or None."""
    text: str | None = _data()["earlier"].get(option)
    return text
