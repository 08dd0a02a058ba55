"""One side of a comparison: a start that a log shows, or a command whose start is predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvroom.ledger.predict import Prediction
from kvroom.logs.reading import Reading
from kvroom.vllm.releases import Release


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of a setting, under vLLM's name; None is "not set"."""

    value: Any
    default: bool = False
    """Filled in from the release's own rules, not shown or written."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A size or a count with the interval in which it lies; bytes for what is a size."""

    value: float
    low: float
    high: float
    basis: str
    """``printed`` by the log, ``derived`` from what it printed, or ``predicted``."""


def known(value: float, basis: str = "printed") -> Figure:
    """A figure without uncertainty."""
    return Figure(value, value, value, basis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One start. A setting or figure that is not in its mapping is unknown."""

    label: str
    """The file's name or the command."""
    kind: str
    """``log`` or ``command``."""
    state: str
    """How the start ended (``serving``, ``failed``, ...), or the verdict on a command."""
    stage: str
    error: str | None
    """The first error of a start that failed."""
    error_line: int | None = None
    failed: bool = False
    reading: Reading | None = None
    release: Release | None = None
    prediction: Prediction | None = None
    """What the rules say of the launch; None where the release, the model or the card is unknown."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    ledger: Mapping[str, Figure] = field(default_factory=dict)
    pool: Mapping[str, Figure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def value(self, name: str) -> Any:
        """The value of a setting, None where it is unknown or not set."""
        found = self.settings.get(name)
        return found.value if found else None
