"""What a person knows beside the log: the command, the card, the model, the release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvroom.errors import UsageError


@dataclass(frozen=True, slots=True)
class Ticket:
    """What was said with a log; UsageError for what is of no use as such."""

    command: str | Sequence[str] | None = None
    """The launch: a line, or its words."""
    model: str | None = None
    gpu: str | None = None
    """A card with an optional count, ``2x RTX 3090``."""
    gpu_memory: str | None = None
    vllm: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    offline: bool = False

    def __post_init__(self) -> None:
        """Check the types, which a caller from Python may have wrong."""
        for name in ("model", "gpu", "gpu_memory", "vllm"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise UsageError(f"{name} is {str(value)[:40]!r}, not a text.", f"Write it as in {name}='...'.")
        command = self.command
        if command is not None and not isinstance(command, str | list | tuple):
            raise UsageError(f"command is a {type(command).__name__}, not a line or its words.")
