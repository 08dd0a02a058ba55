"""A launch of vLLM that somebody wrote down: the words after ``vllm serve`` and what surrounds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
