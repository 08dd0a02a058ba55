"""A launch of vLLM that somebody wrote down: the words after ``vllm serve`` and what surrounds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_SHARED_MEMORY = 64 * 2**20
"""Bytes of /dev/shm that containers get unless told otherwise (containerd, CRI-O and docker alike)."""


@dataclass(frozen=True, slots=True)
class Pod:
    """What a manifest gives the container that a launch runs in. Lines are those of the manifest, 0 where unknown."""

    kind: str
    """The object, for people: ``Deployment llama``, ``service vllm``."""
    container: str = ""
    image: str = ""
    cluster: bool = True
    """Whether it runs on another machine than this one, so that the GPUs here say nothing."""
    gpus: int | None = None
    """GPUs that one pod asks for, None where nothing counts them."""
    nodes: int = 1
    """Pods that one replica of the server spans."""
    shared_memory: int | None = None
    """Bytes of /dev/shm, None where nothing limits it."""
    startup_seconds: int | None = None
    """Seconds that the probes leave for the start, None where none restarts it."""
    open_secrets: tuple[str, ...] = ()
    """Environment variables and flags whose secret stands in the manifest."""
    part: str = ""
    """Why a GPU here is less than a card (MIG, a limit of its memory), empty where it is a whole one."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of ``container``, ``image``, ``gpus``, ``shared_memory``, ``probe``, and of each variable by its name."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One command that starts an OpenAI-compatible vLLM server."""

    tokens: tuple[str, ...]
    """The words after ``vllm serve``."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the command or its file sets."""
    version_hint: str | None = None
    """vLLM version that an image tag or a requirement names, e.g. ``0.28.0``."""
    gpu_hint: int | None = None
    """How many GPUs the launch may see, None when nothing limits or counts them."""
    source: str = ""
    """Where it was read, for people: a file's name, or empty for a command given directly."""
    line: int = 1
    """Line of the source on which the command begins."""
    notes: tuple[str, ...] = ()
    """What was left out or could not be known, one sentence each."""
    cards: tuple[str, ...] = ()
    """The cards that a node selector leaves, by the names of the catalogue or the driver; empty when nothing says."""
    pod: Pod | None = None
    """The container around it where a manifest was read, else None."""
    token_lines: tuple[int, ...] = ()
    """Line of the source for each of ``tokens``; empty where they all stand on ``line``."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A launch that is there and of which nothing can be said, because the file leaves something out."""

    source: str
    line: int
    name: str
    """What it is about: the model, else the object that holds the container."""
    reason: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """A file, or a part of one, that cannot be read."""

    source: str
    line: int
    problem: str
    cure: str = ""


Found = Launch | Unanswered | Unread
"""What a manifest holds, in the order of its lines."""
