"""One candidate that was judged: hardware, how the model is spread and stored, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.ledger.verdict import Status
from kvroom.sizing.layouts import Layout

OWN = frozenset({"as it is", "fp8"})
"""Ways to store the weights that need no other checkpoint: as published, and done by vLLM while loading."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What the throughput model says of a candidate under the need; seconds and tokens a second."""

    ttft: float
    tpot: float
    tpot_low: float
    tpot_high: float
    tokens_per_second: float
    """Output tokens of all replicas together."""
    meets: bool
    """Whether the expected values meet the targets of the need."""


@dataclass(frozen=True, slots=True)
class Option:
    """Numbers only, so that it travels between processes."""

    device_id: str
    asked_as: str
    """A name for ``--gpu``."""
    device: str
    memory_bytes: int
    """What torch reports of one card."""
    layout: Layout
    weights: str
    kv: str
    rank: int
    """Of the level: how much of the checkpoint's quality is given up."""
    tokens: tuple[str, ...]
    """The words after ``vllm serve``."""
    status: Status
    """``fits`` where the need is held at the low end of the uncertainty, ``tight`` at the expected values."""
    room_low: float
    """Requests of the need's size that all replicas hold, at the low end."""
    room: float
    lacks_bytes: int
    """Bytes on one GPU that are missing."""
    spare_bytes: int
    message: str | None
    """vLLM's own text where it does not start."""
    longest: int
    """The longest context of one request, 0 where unknown."""
    speed: Speed | None = None
    price: float | None = None
    """An hour of all GPUs."""

    @property
    def other_checkpoint(self) -> bool:
        """Whether another checkpoint than the one named is needed."""
        return self.weights not in OWN

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.layout.gpus

    @property
    def all_memory(self) -> int:
        """Bytes of all cards together."""
        return self.gpus * self.memory_bytes

    @property
    def cost(self) -> tuple[float, float, float]:
        """What to sort by: the price, where every option has one; the number of GPUs; their memory."""
        return (self.price if self.price is not None else float("inf"), self.gpus, self.all_memory)

    @property
    def meets(self) -> bool:
        """Whether it holds the need and is fast enough."""
        return self.status is Status.FITS and (self.speed is None or self.speed.meets)
