"""A measurer, a listener and what a run needs beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvroom.plans.request import Request
from kvroom.trials.figures import Load, Sample
from kvroom.trials.launchers.local import LocalLauncher
from kvroom.trials.memory import HostMemory
from kvroom.trials.prepare import Asked, Prepared, prepare
from kvroom.trials.run import Tuner
from kvroom.trials.standing import Judgement
from kvroom.trials.store import Store
from kvroom.trials.supervise import Process
from kvroom.trials.trial import Forecast, Proposal, Trial


@dataclass
class Measures:
    """Measures nothing: 100 tokens a second."""

    samples: list[Load] = field(default_factory=list)
    before: Callable[[int], None] = lambda count: None
    """Called before each, with how many there were."""

    def __call__(self, url: str, load: Load) -> Sample:
        """A sample."""
        self.before(len(self.samples))
        self.samples.append(load)
        return Sample(0.1, 0.01, 100.0)


class Listener:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.stages: list[tuple[int, str]] = []
        self.trials: list[Trial] = []

    def proposed(self, number: int, proposal: Proposal, forecast: Forecast, launches: int, most: int) -> None:
        self.said.append(f"launch {launches} of {most}: {forecast.status}")

    def stage(self, number: int, name: str) -> None:
        self.stages.append((number, name))

    def running(self, number: int, processes: tuple[Process, ...], container: str) -> None:
        """Nothing."""

    def came(self, trial: Trial) -> None:
        self.trials.append(trial)

    def judged(self, number: int, judgement: Judgement) -> None:
        self.said.append(f"{number} {judgement.kept}")

    def note(self, text: str) -> None:
        self.said.append(text)


def prepared(command: Sequence[str], goal: str = "context=16k", **asked: Any) -> Prepared:
    """A run on the CPU by the rules of 0.32.0."""
    request = Request(vllm="0.32.0", offline=True)
    return prepare(command, Asked(**{"goal": goal, "request": request, "repeats": 1, "max_trials": 4, **asked}))


def tuner(
    ready: Prepared, store: Store, folder: Path, listener: Listener | None = None, measures: Measures | None = None
) -> Tuner:
    """The run with a measurer that needs no server's answers."""
    launcher = LocalLauncher(measures or Measures(), lambda: HostMemory(1 << 40))
    return Tuner(ready.question, store, launcher, ready.foresight, folder, listener or Listener())
