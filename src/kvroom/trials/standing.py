"""What a run stands on: the trials so far, the one that is kept, and what makes another one better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.trials.goal import Limit, violation
from kvroom.trials.noise import Change, noise_of
from kvroom.trials.trial import State, Trial
from kvroom.trials.ways import LENGTH, SEQS, Terms


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether later trials build on one, and why not."""

    kept: bool
    reason: str = ""
    same: bool = False
    """As good as what was kept, for all that the repeats tell."""


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
        judgement = self._against(trial)
        if judgement.kept:
            self.keep(trial)
        else:
            self.judged.setdefault(trial.number, judgement)
        return judgement.kept

    def makes_no_difference(self, trial: Trial) -> bool:
        """Whether ``trial`` was as good as what was kept when it was judged."""
        return trial.number in self.judged and self.judged[trial.number].same

    def _against(self, trial: Trial) -> Judgement:
        """What ``trial`` is beside what is kept."""
        figures, kept = trial.figures, self.kept
        if trial.state is not State.STARTED or figures is None:
            return Judgement(kept=False, reason=trial.reason or "it does not start")
        if figures.failures:
            return Judgement(kept=False, reason=f"requests failed: {figures.failures}")
        if kept is None or kept.figures is None:
            return Judgement(kept=True)
        excess, before = violation(self.limits, figures), violation(self.limits, kept.figures)
        if excess > before:
            broken = max(self.limits, key=lambda limit: limit.excess(figures))
            return Judgement(kept=False, reason=f"it breaks a limit: {broken.margin(figures)}")
        near, was = self.progress(trial), self.progress(kept)
        if near != was:
            return Judgement(near > was, "" if near > was else "it is further from the goal")
        if excess < before:
            return Judgement(kept=True)
        return self._speed(trial, kept)

    def _speed(self, trial: Trial, kept: Trial) -> Judgement:
        """What ``trial`` is beside ``kept`` where only the speed decides."""
        noise = noise_of(each.throughputs for each in self.known.values())
        change = noise.change(kept.throughputs, trial.throughputs)
        if change is Change.BETTER:
            return Judgement(kept=True)
        rates = [each.figures.throughput if each.figures else 0.0 for each in (trial, kept)]
        said = f"{rates[0]:.4g} tokens/s against {rates[1]:.4g}"
        if change is Change.SAME:
            return Judgement(kept=False, reason=f"no difference beyond the noise: {said}", same=True)
        return Judgement(kept=False, reason=f"slower: {said}")

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
