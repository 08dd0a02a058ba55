"""A trial: one launch, what was predicted of it, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from kvroom.trials.changes import Changes, digest
from kvroom.trials.figures import Figures, figures_of


class State(StrEnum):
    """How far a trial is."""

    RUNNING = "running"
    STARTED = "started"
    """It served and was measured."""
    FAILED = "failed"
    """It was launched and did not serve."""
    SKIPPED = "skipped"
    """It was not launched: the ledger says that it cannot start."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the ledger says of a launch before it happens; None where it cannot tell."""

    status: str = "unknown"
    """``fits``, ``tight``, ``fails`` or ``unknown``."""
    stage: str | None = None
    message: str | None = None
    available_bytes: int | None = None
    needed_bytes: int | None = None
    """One request of full length."""
    kv_tokens: int | None = None
    longest: int | None = None
    """The longest length that would start."""
    basis: str = ""
    """Where ``available_bytes`` is from, as in the ledger."""
    remedies: tuple[Mapping[str, Any], ...] = ()
    """What would make it start, the cheapest first, each as changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A launch to try: what it changes of the command, and why."""

    changes: Changes
    """All of them, against the command."""
    step: Changes
    """What is new against the trial that it builds on."""
    why: str

    @property
    def digest(self) -> str:
        """The same for the same launch."""
        return digest(self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A proposal with what came of it."""

    number: int
    proposal: Proposal
    state: State
    forecast: Forecast = field(default_factory=Forecast)
    figures: Figures | None = None
    reason: str = ""
    """Why it did not start, was not launched, or was not kept; one sentence."""
    finding: str = ""
    """Code and name of what its log was diagnosed with."""
    remedies: tuple[Mapping[str, Any], ...] = ()
    """What its diagnosis says to change, each as changes."""
    log: str = ""
    seconds: float = 0.0
    """From the launch until everything was stopped."""
    kept: bool = False
    """Whether later trials build on it."""
    notes: tuple[str, ...] = ()
    node: str = ""
    """Where it ran, empty for here."""

    @property
    def changes(self) -> Changes:
        """All its changes against the command."""
        return self.proposal.changes

    @property
    def throughputs(self) -> tuple[float, ...]:
        """Output tokens a second of each repeat that was answered in full."""
        samples = self.figures.samples if self.figures else ()
        return tuple(sample.throughput for sample in samples if not sample.failures)

    def data(self) -> dict[str, Any]:
        """The trial as it is stored."""
        data = asdict(self)
        return {**data, "state": str(self.state), "figures": self.figures.data() if self.figures else None}


def trial_of(data: Mapping[str, Any]) -> Trial:
    """The trial that ``Trial.data`` wrote; KeyError, TypeError or ValueError for anything else."""
    proposal, forecast = data["proposal"], data["forecast"]
    trial = Trial(
        number=int(data["number"]),
        proposal=Proposal(changes=proposal["changes"], step=proposal["step"], why=proposal["why"]),
        state=State(data["state"]),
        forecast=Forecast(**{**forecast, "remedies": tuple(forecast["remedies"])}),
        figures=figures_of(data["figures"]) if data["figures"] else None,
    )
    plain = ("reason", "finding", "log", "seconds", "kept", "node")
    return replace(
        trial,
        **{name: data[name] for name in plain},
        remedies=tuple(data["remedies"]),
        notes=tuple(data["notes"]),
    )
