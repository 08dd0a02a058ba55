"""Recognising the server in a command's words: prefixes such as ``sudo`` and ``uv run``, python, vllm."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kvroom.launches.variables import ASSIGNMENT, Word

_PREFIXES: Mapping[str, tuple[frozenset[str], int]] = {
    "exec": (frozenset({"-a"}), 0),
    "nohup": (frozenset(), 0),
    "setsid": (frozenset(), 0),
    "command": (frozenset(), 0),
    "env": (frozenset({"-u", "--unset", "-C", "--chdir"}), 0),
    "sudo": (
        frozenset({"-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D", "--user", "--group", "--chdir"}),
        0,
    ),
    "doas": (frozenset({"-u", "-C"}), 0),
    "nice": (frozenset({"-n", "--adjustment"}), 0),
    "ionice": (frozenset({"-c", "-n", "-p", "--class", "--classdata"}), 0),
    "stdbuf": (frozenset({"-i", "-o", "-e"}), 0),
    "timeout": (frozenset({"-s", "-k", "--signal", "--kill-after"}), 1),
    "taskset": (frozenset(), 1),
    "numactl": (frozenset({"-N", "-m", "-C", "-p", "-i"}), 0),
    "unbuffer": (frozenset(), 0),
    "chrt": (frozenset(), 1),
}
"""Commands that start another: their options that take a value, and how many words come before the other."""
_RUN_TOOLS: Mapping[str, frozenset[str]] = {
    "uv": frozenset({"--with", "--python", "-p", "--from", "--extra", "--group", "--project", "--directory"}),
    "poetry": frozenset(),
    "pipenv": frozenset(),
    "pixi": frozenset({"-e", "--environment"}),
    "conda": frozenset({"-n", "--name", "-p", "--prefix"}),
    "mamba": frozenset({"-n", "--name", "-p", "--prefix"}),
    "micromamba": frozenset({"-n", "--name", "-p", "--prefix"}),
    "uvx": frozenset({"--with", "--python", "-p", "--from"}),
}
"""Tools that run a command in an environment: their options that take a value."""
_PYTHON = re.compile(r"python(?:\d(?:\.\d+)?)?(?:\.exe)?", re.ASCII)
_PYTHON_VALUED = frozenset({"-X", "-W", "--check-hash-based-pycs"})
_SERVER_MODULES = frozenset({"vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"})
_CLI_MODULES = frozenset({"vllm", "vllm.entrypoints.cli.main", "vllm.scripts"})
_REQUIREMENT = re.compile(r"\bvllm(?:\[[^\]]*\])?(?:==|@)v?(\d+\.\d+(?:\.\d+)?)", re.ASCII)


def requirement(words: Sequence[Word]) -> str | None:
    """The vLLM version that a word such as ``vllm==0.28.0`` or ``vllm@0.28`` names, or None."""
    for word in words:
        match = _REQUIREMENT.search(word.text)
        if match:
            return match.group(1)
    return None


def program_name(word: Word) -> str:
    """The name of the program that ``word`` starts, without its path."""
    return word.text.replace("\\", "/").rsplit("/", 1)[-1]


def is_program(word: Word) -> bool:
    """Whether ``word`` starts the server, or a program that starts another."""
    name = program_name(word)
    known = name in _PREFIXES or name in _RUN_TOOLS or name in ("vllm", "vllm.exe")
    return known or _PYTHON.fullmatch(name) is not None or ASSIGNMENT.match(word.text) is not None


def strip_prefixes(words: list[Word]) -> tuple[list[Word], dict[str, Word], str | None]:
    """``words`` from the program itself on, the environment set in front of it, and a version named there."""
    env: dict[str, Word] = {}
    version: str | None = None
    at = 0
    while at < len(words):
        name = program_name(words[at])
        after = words[at + 1].text if at + 1 < len(words) else ""
        if ASSIGNMENT.match(words[at].text):
            variable, _, text = words[at].text.partition("=")
            env[variable] = Word(text, words[at].unknown)
            at += 1
        elif name in _PREFIXES:
            valued, ahead = _PREFIXES[name]
            at = _skip_options(words, at + 1, valued) + ahead
        elif name == "uvx" or (name in _RUN_TOOLS and after in ("run", "tool")):
            version = requirement(words[at:]) or version
            at = _skip_options(words, at + (1 if name == "uvx" else 2), _RUN_TOOLS[name])
        else:
            break
    return words[at:], env, version


def _skip_options(words: list[Word], at: int, valued: frozenset[str]) -> int:
    while at < len(words) and words[at].text.startswith("-"):
        if words[at].text == "--":
            return at + 1
        at += 2 if words[at].text in valued else 1
    return at


def server_words(words: list[Word]) -> list[Word] | None:
    """What follows ``vllm serve``, or its older spellings, in ``words``; None when they start no server."""
    name = program_name(words[0])
    if name in ("vllm", "vllm.exe") or _REQUIREMENT.fullmatch(name):
        return words[2:] if len(words) > 1 and words[1].text == "serve" else None
    if not _PYTHON.fullmatch(name):
        return None
    at = 1
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "-m":
        at += 2 if words[at].text in _PYTHON_VALUED else 1
    if at + 1 < len(words) and words[at].text == "-m":
        module = words[at + 1].text
        if module in _SERVER_MODULES:
            return words[at + 2 :]
        if module in _CLI_MODULES and at + 2 < len(words) and words[at + 2].text == "serve":
            return words[at + 3 :]
    elif at < len(words) and words[at].text.endswith("vllm/entrypoints/openai/api_server.py"):
        return words[at + 1 :]
    return None
