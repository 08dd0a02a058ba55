"""A reading: what one start in a log says, from who it is to where it stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kvroom.logs.facts import Fact, Facts
from kvroom.logs.serving import Load
from kvroom.logs.stages import Mark
from kvroom.logs.timeline import Step


class State(StrEnum):
    """How a start ended, as far as the log goes."""

    FAILED = "failed"
    """It stopped with an error before it could serve."""
    DIED = "died"
    """It served, or was ready to, and stopped with an error."""
    SERVING = "serving"
    STARTED = "started"
    """The engine is ready; no server is shown."""
    STOPPED = "stopped"
    """It was shut down in order."""
    UNFINISHED = "unfinished"
    """The log ends on the way, without an error."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One size that the log printed, in bytes per GPU, folded over the ranks."""

    name: str
    """``total``, ``free``, ``requested``, ``weights``, ``activation``, ``other``, ``cuda_graphs``,
    ``graph_estimate``, ``graph_actual``, ``consumed`` (weights and other) or ``available``."""
    value: int
    """The one that counts: the smallest ``available``, the largest of the others."""
    low: int
    high: int
    line: int
    printed: str
    """As the log has it, e.g. ``3.06``."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Bytes by process where several printed it."""


@dataclass(frozen=True, slots=True)
class PoolRead:
    """What the log says of the KV pool; None where it says nothing."""

    num_blocks: int | None = None
    block_size: int | None = None
    tokens: int | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    needed_bytes: int | None = None
    available_bytes: int | None = None
    estimated_max_len: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One start."""

    first_line: int
    last_line: int
    version: str | None
    """vLLM's version as printed, e.g. ``0.11.1rc2.dev141+g38db529f6``."""
    engine: str | None
    """``V0`` or ``V1``."""
    model: str | None
    given: Mapping[str, Any]
    """Arguments that differ from the defaults, by vLLM's names, as the server printed them."""
    settings: Mapping[str, Any]
    """``given`` and what the engine and other lines say."""
    words: tuple[str, ...]
    """The words after ``vllm serve``, rebuilt or as shown; empty where nothing tells."""
    device: str | None
    gpus: int | None
    """How many GPUs the start spans."""
    total_bytes: int | None
    free_bytes: int | None
    """Memory that was free when the start looked."""
    attention_backend: str | None
    state: State
    stage: str
    """Where it stopped, else the furthest stage; ``unknown`` where no line tells."""
    marks: tuple[Mark, ...]
    timeline: tuple[Step, ...]
    measured: Mapping[str, Measured]
    pool: PoolRead
    facts: Facts
    load: Load
    statuses: Counter[int]
    """Refused and failed requests by HTTP status."""
    error: Fact | None
    """The first real error."""
    contradictions: tuple[str, ...] = ()
    ending: str = ""
    """The last line that is not empty, cleaned."""

    def size(self, name: str) -> int | None:
        """The bytes of the measured entry ``name``, None where the log does not print it."""
        found = self.measured.get(name)
        return found.value if found else None

    @property
    def came_up(self) -> bool:
        """Whether the start reached the point where it serves or could."""
        return self.state in {State.SERVING, State.STARTED, State.STOPPED, State.DIED}
