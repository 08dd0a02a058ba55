"""Who is told how a run goes on."""

from __future__ import annotations

from typing import Protocol

from kvroom.trials.standing import Judgement
from kvroom.trials.trial import Forecast, Proposal, Trial


class Progress(Protocol):
    """Who is told how the run goes on; also a ``Watch`` of launches."""

    def proposed(self, number: int, proposal: Proposal, forecast: Forecast, launches: int, most: int) -> None:
        """A trial is about to be launched, the ``launches``-th of at most ``most``."""

    def came(self, trial: Trial) -> None:
        """A trial is over."""

    def judged(self, number: int, judgement: Judgement) -> None:
        """A trial is kept or put back."""

    def stage(self, number: int, name: str) -> None:
        """A launch has reached a stage."""

    def note(self, text: str) -> None:
        """Something worth a line."""
