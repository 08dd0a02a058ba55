"""From what people have (a command, a docker line, a script) to plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields

from kvroom.errors import KvroomError, UsageError
from kvroom.launches.launch import Launch
from kvroom.launches.read import read_command, read_words
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request, checked_env


def check(command: str, *, env: Mapping[str, str] | None = None, **request: object) -> list[Plan]:
    """The plans of every vLLM launch in ``command``: a line or a whole shell script.

    ``request`` takes the keywords of ``kvroom.plan`` that are not vLLM's: ``gpu``, ``vllm``, ``offline``, ...
    What ``kvroom learn`` kept is used unless ``learned`` is False. Raises a KvroomError for text that cannot be read.
    """
    if not isinstance(command, str):
        raise UsageError(f"The command is a {type(command).__name__}, not a text.", "Give a line or a script.")
    unknown = request.keys() - {each.name for each in fields(Request)}
    if unknown:
        raise UsageError(f"check has no argument {min(unknown)}.", "vLLM's flags belong into the command.")
    return check_text(command, checked_env(env), Request(**{"learned": True, **request}))  # type: ignore[arg-type]


def check_text(text: str, env: Mapping[str, str], request: Request, source: str = "") -> list[Plan]:
    """The plans of the launches in ``text``, which came from the file ``source``."""
    with _named("" if source == "-" else source):
        launches = read_command(text, source=source)
    return [_plan(launch, env, request) for launch in launches]


def check_words(words: Sequence[str], env: Mapping[str, str], request: Request) -> list[Plan]:
    """The plans of a command that a shell has already split into words."""
    return [_plan(launch, env, request) for launch in read_words(words)]


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Errors from here on say that they are about ``place``, so that one of many files can be told."""
    try:
        yield
    except KvroomError as error:
        if not place or error.problem.startswith(place):
            raise
        raise type(error)(f"{place}: {error.problem}", error.cure) from error


def _plan(launch: Launch, env: Mapping[str, str], request: Request) -> Plan:
    with _named(f"{launch.source}, line {launch.line}" if launch.source else ""):
        return plan_tokens(
            launch.tokens,
            {**launch.env, **env},
            request,
            version_hint=launch.version_hint,
            source=launch.source or None,
            line=launch.line,
            count_hint=launch.gpu_hint,
            notes=launch.notes,
        )
