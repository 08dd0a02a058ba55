"""vLLM's own words when it refuses a configuration before anything is loaded."""

from __future__ import annotations

from typing import NoReturn

from kvroom.errors import EngineError
from kvroom.vllm.rules import Rules


class StartRefused(EngineError):
    """vLLM would stop with ``message``, its own text, in ``stage``."""

    def __init__(self, message: str, stage: str = "config") -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage
        """``config`` (before any worker exists), ``device_memory_check`` (in the worker, before the model)
        or ``weight_load``."""


def refuse(rules: Rules, rule: str, *, stage: str = "config", **values: object) -> NoReturn:
    """Raise StartRefused with the text that the release has under ``rule``."""
    raise StartRefused(str(rules[rule]).format(**values), stage)
