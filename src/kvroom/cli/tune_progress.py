"""How a run of ``tune`` goes on, on standard error: a moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from kvroom.cli.progress import Moving
from kvroom.errors import short
from kvroom.redaction import clean
from kvroom.trials.changes import shown
from kvroom.trials.question import Question
from kvroom.trials.standing import Judgement
from kvroom.trials.trial import Forecast, Proposal, State, Trial

_LINE, _MOVING = 400, 100
"""Characters of a line, and of one that moves."""
_FIRST = 90.0
"""Seconds that a trial is taken to last before one was seen."""


class TuneProgress(Moving):
    """Shows the trial, the stage of its start, and the time that may be left."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._lasted: list[float] = []
        self._launches, self._begun = 0, time.monotonic()
        self._trial = ""

    def proposed(self, number: int, proposal: Proposal, forecast: Forecast, launches: int, most: int) -> None:
        """Say what is launched, and what the ledger expects of it."""
        self._launches, self._begun = launches, time.monotonic()
        self._trial = f"trial {number}"
        tokens = f", {forecast.kv_tokens:,} KV tokens" if forecast.kv_tokens else ""
        step = shown(proposal.step, self._question.release) or "the command as it is"
        self.note(f"trial {number} (launch {launches} of at most {most}): {step}: {proposal.why}")
        self.note(f"  predicted: {forecast.status}{tokens}; at most {self._left(most)} left")

    def stage(self, number: int, name: str) -> None:
        """Say which stage the launch has reached."""
        waited = time.monotonic() - self._begun
        usual = f" of about {self._mean():.0f} s" if self._lasted else ""
        text = f"trial {number}: {name}, {waited:.0f} s{usual}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=short(clean(text), _MOVING))
        else:
            self.note(f"  {text}")

    def came(self, trial: Trial) -> None:
        """Say what came of the trial."""
        if trial.state is State.SKIPPED:
            step = shown(trial.proposal.step, self._question.release)
            self.note(f"trial {trial.number} skipped: {step}: {trial.reason}")
            return
        self._lasted.append(trial.seconds)
        figures = trial.figures
        if figures is None:
            self.note(f"  failed: {trial.reason}")
            return
        first = f", first token {figures.ttft:.3g} s" if figures.ttft is not None else ""
        peak = f", peak {figures.peak.share:.0%}" if figures.peak else ""
        self.note(f"  {figures.kv_tokens or 0:,} KV tokens, {figures.throughput:.4g} tokens/s{first}{peak}")

    def judged(self, number: int, judgement: Judgement) -> None:
        """Say whether it is kept."""
        self.note(f"  trial {number} {'kept' if judgement.kept else f'put back: {judgement.reason}'}")

    def note(self, text: str) -> None:
        """A line."""
        text = short(clean(text), _LINE)
        if self._bar is not None:
            self._bar.console.print(text, markup=False, soft_wrap=True)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _left(self, most: int) -> str:
        minutes = (most - self._launches + 1) * self._mean() / 60
        return f"{minutes:.0f} min" if minutes >= 1 else "1 min"

    def _mean(self) -> float:
        return sum(self._lasted) / len(self._lasted) if self._lasted else _FIRST
