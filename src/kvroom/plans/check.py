"""From what people have (a command, a docker line, a script) to plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvroom.errors import UsageError
from kvroom.launches.launch import Launch
from kvroom.launches.read import read_command, read_words
from kvroom.plans.make import Request, plan_tokens
from kvroom.plans.plan import Plan


def check(command: str, *, env: Mapping[str, str] | None = None, **request: object) -> list[Plan]:
    """The plans of every vLLM launch in ``command``: a line or a whole shell script.

    ``request`` takes the keywords of ``kvroom.plan`` that are not vLLM's: ``gpu``, ``vllm``, ``offline``, ...
    Raises a KvroomError for text that cannot be read.
    """
    return check_text(command, env or {}, Request(**request))  # type: ignore[arg-type]


def check_text(text: str, env: Mapping[str, str], request: Request, source: str = "") -> list[Plan]:
    """The plans of the launches in ``text``, which came from the file ``source``."""
    launches = read_command(text, source=source)
    if not launches:
        raise UsageError(f"{source or 'The text'}: no vLLM launch command in it.")
    return [_plan(launch, env, request) for launch in launches]


def check_words(words: Sequence[str], env: Mapping[str, str], request: Request) -> list[Plan]:
    """The plans of a command that a shell has already split into words."""
    return [_plan(launch, env, request) for launch in read_words(words)]


def _plan(launch: Launch, env: Mapping[str, str], request: Request) -> Plan:
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
