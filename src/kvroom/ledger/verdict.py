"""Whether a launch starts: the outcome at each end of the uncertainty, and what they say together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """The answer of a plan."""

    FITS = "fits"
    TIGHT = "tight"
    """The answer lies inside the uncertainty: it may start, it may not."""
    FAILS = "fails"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What vLLM does with one definite number of available bytes."""

    starts: bool
    stage: str | None = None
    """Where it stops: ``config``, ``device_memory_check``, ``weight_load``, ``profile`` or ``kv_sizing``."""
    message: str | None = None
    """The text that this release raises."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``status`` with the stage and vLLM's message where it fails or may fail."""

    status: Status
    stage: str | None = None
    message: str | None = None
    left_out: str | None = None
    """What vLLM's message does not say: the attention backend in use and the setting to blame."""


def judge(low: Outcome, expected: Outcome, high: Outcome) -> Verdict:
    """The verdict over the outcomes at the low, expected and high end of what is available."""
    if low.starts and expected.starts and high.starts:
        return Verdict(Status.FITS)
    failing = expected if not expected.starts else low if not low.starts else high
    if not (low.starts or expected.starts or high.starts):
        return Verdict(Status.FAILS, failing.stage, failing.message)
    return Verdict(Status.TIGHT, failing.stage, failing.message)
