"""The environment of a container in a pod, and Kubernetes' ``$(NAME)`` in its words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvroom.errors import UsageError
from kvroom.launches.manifests.tree import Tree
from kvroom.launches.variables import Word
from kvroom.redaction import is_secret_flag

_REFERENCE = re.compile(r"\$\$|\$\((?P<name>[-._A-Za-z0-9]+)\)")
_LONGEST = 100_000
"""Characters of one value: a few variables that double each other make billions."""
_HIDDEN_VALUE = re.compile(
    r"^$|^[<$\[{]|\b(?:your|replace|change|xxx|todo|example|placeholder|redacted)\b|x{4}|\*{3}", re.I
)


@dataclass(slots=True)
class Environment:
    """The variables of one container: those with a value, and where the others come from."""

    values: dict[str, Word] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Name to ``secret hf-token`` and the like, for what the file does not say."""
    lines: dict[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    """What ``envFrom`` takes in whole and the file does not hold."""


def read_environment(container: Tree, configs: Mapping[str, Tree], given: Mapping[str, str]) -> Environment:
    """The environment of ``container``; ``configs`` are the file's ConfigMaps, ``given`` what a controller sets."""
    env = Environment({name: Word(value) for name, value in given.items()})
    sources: list[str] = []
    for each in container.get("envFrom").elements():
        config, secret = each.get("configMapRef", "name"), each.get("secretRef", "name")
        if config.text in configs:
            for name, value in configs[config.text].get("data").items():
                _set(env, each.get("prefix").text + name, value)
        elif config or secret:
            sources.append(f"config map {config.shown}" if config else f"secret {secret.shown}")
    env.sources = tuple(sources)
    for each in container.get("env").elements():
        name, value, origin = each.get("name").text, each.get("value"), each.get("valueFrom")
        if not name:
            continue
        reference = origin.get("configMapKeyRef")
        known = (
            configs[reference.get("name").text].get("data", reference.get("key").text)
            if (reference and reference.get("name").text in configs)
            else None
        )
        if origin and not known:
            env.values.pop(name, None)
            env.elsewhere[name] = _origin(origin)
            env.lines[name] = each.get("name").line
        else:
            _set(env, name, known or value, each.get("name").line)
    return env


def _set(env: Environment, name: str, value: Tree, line: int = 0) -> None:
    env.values[name] = put_in(value.word, env)
    env.elsewhere.pop(name, None)
    env.lines[name] = line or value.line


def _origin(origin: Tree) -> str:
    for key, kind in (("secretKeyRef", "secret"), ("configMapKeyRef", "config map"), ("fieldRef", "the pod's field")):
        if origin.get(key):
            named = origin.get(key, "name") or origin.get(key, "fieldPath")
            return f"{kind} {named.shown}"
    return "the cluster"


def put_in(word: Word, env: Environment) -> Word:
    """``word`` with ``$(NAME)`` replaced as Kubernetes does: ``$$`` stands for ``$``, an unset name stays as it is.

    Raises UsageError where the values make it longer than any command.
    """
    if "$" not in word.text:
        return word
    unknown = list(word.unknown)
    length = 0

    def one(match: re.Match[str]) -> str:
        nonlocal length
        name = match["name"]
        if name is None:
            return "$"
        known = env.values.get(name)
        if known is not None:
            unknown.extend(known.unknown)
            length += len(known.text)
            if length > _LONGEST:
                raise UsageError(
                    f"$({name}) and the other variables make a text of more than {_LONGEST:,} characters.",
                    "Write the values out.",
                )
            return known.text
        if name in env.elsewhere:
            unknown.append(name)
        return match.group()

    text = _REFERENCE.sub(one, word.text)
    return Word(text, tuple(dict.fromkeys(unknown)), word.arguments)


def open_flags(tokens: Sequence[str], lines: Sequence[int], rows: Sequence[str]) -> dict[str, int]:
    """Flags whose secret stands in the file itself, with their lines; not those that a variable fills in."""
    found = {}
    for at, token in enumerate(tokens):
        flag, equals, value = token.partition("=")
        place = at if equals else at + 1
        if not is_secret_flag(flag) or place >= len(tokens) or (not equals and tokens[place].startswith("-")):
            continue
        value = value or tokens[place]
        here = lines[place] >= lines[at] and value in rows[lines[place] - 1]
        if here and is_open_secret(value):
            found[flag] = lines[place]
    return found


def is_open_secret(value: str) -> bool:
    """Whether a secret's value is written out: neither a reference nor a placeholder.

    >>> is_open_secret("hf_abcdefghijkl"), is_open_secret("$HF_TOKEN"), is_open_secret("<your token>")
    (True, False, False)
    """
    return len(value) >= 6 and _HIDDEN_VALUE.search(value) is None
