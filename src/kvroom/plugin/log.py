"""What the plugin says: through vLLM's logger, in vLLM's format, and every complaint once in a process."""

from __future__ import annotations

import logging
from typing import Protocol


class Log(Protocol):
    """Where lines go."""

    def info(self, line: str, /) -> None:
        """Log a line."""

    def warning(self, line: str, /) -> None:
        """Log a line that somebody should see."""


_said: set[str] = set()


def vllm_log() -> logging.Logger:
    """A logger below vLLM's own, so that its handlers, format and level hold."""
    return logging.getLogger("vllm.plugins.kvroom")


def complain(what: str, error: BaseException, log: Log | None = None, said: set[str] = _said) -> None:
    """Log that ``what`` did not work because of ``error``, the first time only; never raises."""
    if what in said:
        return
    said.add(what)
    try:
        text = " ".join(str(getattr(error, "strerror", None) or error).split())[:300]
        (log or vllm_log()).warning(f"kvroom: {what} ({type(error).__name__}: {text}); the start goes on without it.")
    except Exception:  # noqa: BLE001, S110 - there is nothing left to say it with
        pass
