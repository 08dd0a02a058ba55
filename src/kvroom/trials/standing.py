"""What a run stands on: the trials so far, the one that is kept, and what makes another one better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.trials.goal import Limit, violation
from kvroom.trials.noise import Change, noise_of
from kvroom.trials.trial import State, Trial
from kvroom.trials.ways import LENGTH, SEQS, Terms

_NO_DIFFERENCE = "no difference beyond the noise"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether later trials build on one, and why not."""

    kept: bool
    reason: str = ""


class Standing:
    """``kept`` is the trial that the next ones build on, ``judged`` what was thought of each, by its number."""

    def __init__(self, terms: Terms, limits: Sequence[Limit]) -> None:
        self.terms = terms
        self.limits = tuple(limits)
        self.kept: Trial | None = None
        self.judged: dict[int, Judgement] = {}
        self.known: dict[str, Trial] = {}
        """The trials by the digest of their changes."""

    @property
    def launches(self) -> int:
        """How many launches were made."""
        return sum(trial.state is not State.SKIPPED for trial in self.known.values())

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every trial so far, those that were skipped as well."""
        return tuple(self.known.values())

    def keep(self, trial: Trial) -> None:
        """Build on ``trial`` from now on."""
        self.kept = trial
        self.judged[trial.number] = Judgement(kept=True)

    def judge(self, trial: Trial) -> bool:
        """Keep ``trial`` if it is better than what is kept: nearer to the goal, within the limits, faster."""
        reason = self.against(trial)
        if reason:
            self.judged.setdefault(trial.number, Judgement(kept=False, reason=reason))
            return False
        self.keep(trial)
        return True

    def against(self, trial: Trial) -> str:
        """Why ``trial`` is not kept; empty where it is."""
        figures, kept = trial.figures, self.kept
        if trial.state is not State.STARTED or figures is None:
            return trial.reason or "it does not start"
        if figures.failures:
            return f"requests failed: {figures.failures}"
        if kept is None or kept.figures is None:
            return ""
        excess, before = violation(self.limits, figures), violation(self.limits, kept.figures)
        if excess > before:
            broken = max(self.limits, key=lambda limit: limit.excess(figures))
            return f"it breaks a limit: {broken.margin(figures)}"
        near, was = self.progress(trial), self.progress(kept)
        if near != was:
            return "" if near > was else "it is further from the goal"
        if excess < before:
            return ""
        noise = noise_of(each.throughputs for each in self.known.values())
        change = noise.change(kept.throughputs, trial.throughputs)
        if change is Change.BETTER:
            return ""
        said = f"{figures.throughput:.4g} tokens/s against {kept.figures.throughput:.4g}"
        return f"{_NO_DIFFERENCE}: {said}" if change is Change.SAME else f"slower: {said}"

    def makes_no_difference(self, trial: Trial) -> bool:
        """Whether ``trial`` is as good as what is kept, for all that the repeats tell."""
        return self.against(trial).startswith(_NO_DIFFERENCE)

    def progress(self, trial: Trial) -> float:
        """How near to the goal ``trial`` is, 1 where it is met."""
        if trial.figures is None:
            return 0.0
        return self.terms.goal.progress(trial.figures, self.terms.value(trial.changes, SEQS))

    def wants_pool(self) -> bool:
        """Whether a larger pool may help: the goal needs it, or requests were held back."""
        if self.kept is None or self.kept.figures is None:
            return False
        return self.progress(self.kept) < 1 or self.kept.figures.pool_was_full

    def breaks(self, *names: str) -> bool:
        """Whether what is kept breaks a limit on one of ``names``."""
        if self.kept is None or self.kept.figures is None:
            return False
        return violation([limit for limit in self.limits if limit.name in names], self.kept.figures) > 0

    def value(self, name: str) -> int | None:
        """The whole number that argument ``name`` has in what is kept."""
        return self.terms.value(self.kept.changes, name) if self.kept else None

    def length(self) -> int:
        """The length that what is kept serves, 0 without any."""
        figures = self.kept.figures if self.kept else None
        return (figures.max_model_len if figures else None) or self.value(LENGTH) or 0
