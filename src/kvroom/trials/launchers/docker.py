"""A container command as it was given, with a name by which the container can be stopped, and the port it publishes."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kvroom.errors import UsageError, short
from kvroom.vllm.flags import flags_for
from kvroom.vllm.items import read_items
from kvroom.vllm.releases import Release
from kvroom.vllm.rules import rules_for

_DETACHES = frozenset({"-d", "--detach", "--detach=true"})
_INSIDE = 8000
"""The port that vLLM listens on unless it is told another (entrypoints/openai/cli_args.py)."""
_STOP_S = "15"


@dataclass(frozen=True, slots=True)
class Container:
    """How one trial's container is started, reached and removed."""

    front: tuple[str, ...]
    """The words up to the image."""
    name: str
    port: int
    """On this machine."""

    @property
    def removal(self) -> tuple[str, ...]:
        """The command that ends it; it is removed by itself then."""
        return (self.front[0], "stop", "--time", _STOP_S, self.name)


def contain(front: Sequence[str], tokens: Sequence[str], release: Release, name: str) -> Container:
    """The container command in ``front`` with ``name``, in the foreground, removed when it ends.

    ``tokens`` are vLLM's words, which may move its port. Raises UsageError where its port cannot be reached.
    """
    words = list(front)
    at = words.index("run") if "run" in words else -1
    if at < 0:
        raise UsageError("The container command does not run anything.", "Give docker run ... IMAGE ...")
    options: list[str] = []
    named = ""
    rest = words[at + 1 :]
    while rest:
        word = rest.pop(0)
        if word in _DETACHES:
            continue
        if word in {"-itd", "-dit", "-it", "-ti", "-i", "-t", "--interactive", "--tty"}:
            continue  # there is no terminal
        if word == "--name" or word.startswith("--name="):
            named = word.partition("=")[2] or (rest.pop(0) if rest else "")
            continue
        options.append(word)
    if "--rm" not in options:
        options.insert(0, "--rm")
    del named  # a second container could not have it
    inside = _inside(tokens, release)
    return Container((*words[: at + 1], "--name", name, *options), name, _published(options, inside))


def remove(tool: str, name: str) -> None:
    """End a container that a kvroom which died left running."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        for words in (("stop", "--time", _STOP_S), ("rm", "--force")):
            subprocess.run([tool, *words, name], capture_output=True, timeout=60, check=False)  # noqa: S603


def _inside(tokens: Sequence[str], release: Release) -> int:
    """The port that vLLM listens on within the container."""
    for item in read_items(tokens, flags_for(release), rules_for(release)):
        if item.flag is not None and item.flag.name == "port" and item.values and item.values[0].isdecimal():
            return int(item.values[0])
    return _INSIDE


def _published(options: Sequence[str], inside: int) -> int:
    """The port of this machine behind which ``inside`` is; UsageError where there is none."""
    for word, after in pairwise([*options, ""]):
        name, _, attached = word.partition("=")
        value = attached or after
        if name in {"--network", "--net"} and value == "host":
            return inside
        if name in {"-p", "--publish"} or (word.startswith("-p") and word[2:3].isdecimal()):
            mapped = (word[2:] if word[2:3].isdecimal() else value).rpartition("/")[0] or (
                word[2:] if word[2:3].isdecimal() else value
            )
            host, _, container = mapped.rpartition(":")
            if container == str(inside) and host.rpartition(":")[2].isdecimal():
                return int(host.rpartition(":")[2])
    raise UsageError(
        f"The container publishes no port for vLLM's {inside}: {short(' '.join(options), 60)}",
        f"Add -p 127.0.0.1:{inside}:{inside} or --network host.",
    )
