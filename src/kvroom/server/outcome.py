"""What one request came to: its times, its tokens, or how it failed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Failure(StrEnum):
    """How a request can fail."""

    UNREACHABLE = "unreachable"
    """Nobody takes the connection."""
    TLS = "tls"
    """The certificate is not trusted."""
    TIMEOUT = "timeout"
    """No answer, or no end of one, in the time given."""
    DROPPED = "dropped"
    """The connection ended within the answer."""
    GARBAGE = "garbage"
    """An answer that is none."""
    REDIRECT = "redirect"
    """It points to another place, where nothing is sent."""
    REFUSED = "refused"
    """HTTP 400 to 499."""
    SERVER_ERROR = "server_error"
    """HTTP 500 to 599, or an error within the stream."""
    STUCK = "stuck"
    """Accepted and never scheduled; cancelled."""
    BUDGET = "budget"
    """Not sent, or cut off: the requests or seconds allowed are used up."""


class Failed(Exception):
    """A request that failed, inside this package; ``str`` says how."""

    def __init__(self, kind: Failure, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One generation. Times are seconds; ``started`` is on the clock of ``time.perf_counter``."""

    failure: Failure | None = None
    message: str = ""
    status: int | None = None
    started: float = 0.0
    ttft: float | None = None
    """From sending to the first token."""
    latency: float | None = None
    """From sending to the last token."""
    itls: tuple[float, ...] = ()
    """Between chunks; one may hold several tokens."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    finish: str = ""
    waited: float = 0.0
    """In kvroom, for a seat in the step."""

    @property
    def ok(self) -> bool:
        """Whether it was answered to its end."""
        return self.failure is None

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first, as ``vllm bench serve`` takes it; None below two tokens."""
        if self.ttft is None or self.latency is None or self.output_tokens < 2:
            return None
        return (self.latency - self.ttft) / (self.output_tokens - 1)
