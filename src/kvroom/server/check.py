"""One thing that must hold, and whether it does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvroom.server.outcome import Failure, Outcome


class Held(StrEnum):
    """What became of a check."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"
    """It could not be tried, or does not apply; ``seen`` says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was seen, what that means, and what to do where it does not hold."""

    name: str
    held: Held
    seen: str
    why: str = ""
    cure: str = ""


CURES = {
    Failure.UNREACHABLE: "See whether the process still runs: kvroom diagnose LOG reads why it ended.",
    Failure.DROPPED: "See whether the process still runs: kvroom diagnose LOG reads why it ended.",
    Failure.SERVER_ERROR: "The cause is in the server's log: kvroom diagnose LOG.",
    Failure.STUCK: "Give the KV cache more room than one request of max_model_len needs, or lower --max-model-len.",
    Failure.TIMEOUT: "Raise --timeout if the server is that slow; else read its log: kvroom diagnose LOG.",
    Failure.GARBAGE: "Something else than vLLM answers there, or a proxy changes the answers.",
    Failure.REDIRECT: "Give the URL that it points to, if that is the server.",
    Failure.BUDGET: "Raise --max-requests or --max-seconds.",
}
"""What to do about a request that failed."""


def failed(name: str, outcome: Outcome, why: str = "", cure: str = "") -> Check:
    """The check that a request's failure makes: unknown where kvroom's own bounds ended it."""
    held = Held.UNKNOWN if outcome.failure is Failure.BUDGET else Held.FAILS
    status = f"HTTP {outcome.status}: " if outcome.status not in {None, 200} else ""
    remedy = cure or (CURES.get(outcome.failure, "") if outcome.failure else "")
    return Check(name, held, f"{status}{outcome.message}", why, remedy)
