"""What a trial changes of the command: arguments by vLLM's names, and environment variables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from kvroom.vllm.flags import flags_for
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release
from kvroom.vllm.render import flag_words, render_command

Value = int | float | str | bool | None
Changes = Mapping[str, Value]
"""By argument name, e.g. ``max_model_len``; a name that begins with ``env `` is a variable."""
ENV = "env "


def words_with(tokens: Sequence[str], changes: Changes, release: Release) -> list[str]:
    """The words after ``vllm serve`` with ``changes`` in them; UsageError for a flag that the release lacks."""
    flags = {name: value for name, value in changes.items() if not name.startswith(ENV) and value is not None}
    gone = [name for name, value in changes.items() if not name.startswith(ENV) and value is None]
    return render_command(tokens, release=release, set_flags=flags, unset=gone)


def env_with(env: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """The variables of the launch with ``changes`` in them."""
    found = dict(env)
    for name, value in changes.items():
        if name.startswith(ENV):
            found[name.removeprefix(ENV)] = str(value)
    return found


def shown(changes: Changes, release: Release) -> str:
    """``changes`` as they are written on a command line."""
    words: list[str] = []
    for name, value in changes.items():
        if name.startswith(ENV):
            words.append(f"{name.removeprefix(ENV)}={value}")
        elif value is None:
            words.append(f"without {option(name)}")
        else:
            words += flag_words(name, value, flags_for(release))
    return " ".join(words)


def option(name: str) -> str:
    """An argument's name as an option."""
    return name.removeprefix(ENV) if name.startswith(ENV) else "--" + name.replace("_", "-")


def digest(changes: Changes) -> str:
    """Sixteen hexadecimal digits, the same for the same changes in any order."""
    return sha256(json.dumps(dict(changes), sort_keys=True).encode()).hexdigest()[:16]


def changes_of(flags: Sequence[str], release: Release) -> dict[str, Any] | None:
    """The changes that the words of a remedy make; None where they are no plain flags of the release."""
    if any(not word.startswith("-") and "=" in word for word in flags):
        found: dict[str, Any] = {}
        for word in flags:
            name, equals, value = word.partition("=")
            if not equals or word.startswith("-"):
                return None
            found[ENV + name] = value
        return found
    args = parse_serve_args(["model", *flags], {}, release=release)
    if args.unknown or args.passed or not args.given:
        return None
    return {name: value for name, value in args.given.items() if isinstance(value, int | float | str | bool)} or None
