"""How a run ends: the best command with its reasons and margins, or the nearest to a goal that is not met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvroom.trials.changes import shown
from kvroom.trials.figures import Figures
from kvroom.trials.goal import Limit, violation
from kvroom.trials.noise import Change, noise_of
from kvroom.trials.search import Search
from kvroom.trials.trial import State, Trial
from kvroom.vllm.releases import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a run came to."""

    met: bool
    best: int | None
    """The number of the trial that meets the goal best, or comes nearest; None where nothing served."""
    command: tuple[str, ...]
    why: tuple[str, ...]
    margin: tuple[str, ...]
    launches: int
    started: int
    skipped: int
    stopped: str
    """Why the run stopped."""

    def data(self) -> dict[str, Any]:
        """As it is stored and printed."""
        return {
            "met": self.met,
            "best": self.best,
            "command": list(self.command),
            "why": list(self.why),
            "margin": list(self.margin),
            "launches": self.launches,
            "started": self.started,
            "skipped": self.skipped,
            "stopped": self.stopped,
        }


def ending_of(search: Search, command: Sequence[str], release: Release, *, most: int) -> Ending:
    """The ending of a ``search`` that is over; ``command`` is the best one's, where there is one."""
    best = search.kept
    launched = [trial for trial in search.trials if trial.state is not State.SKIPPED]
    met = best is not None and _meets(search, best)
    return Ending(
        met=met,
        best=best.number if best else None,
        command=tuple(command),
        why=tuple(_why(search, best, release, met=met)) if best else tuple(_refusals(search)),
        margin=tuple(_margin(search, best)) if best else (),
        launches=len(launched),
        started=sum(trial.state is State.STARTED for trial in launched),
        skipped=len(search.trials) - len(launched),
        stopped=f"{most} launches are used up" if len(launched) >= most else "nothing is left to gain",
    )


def _meets(search: Search, trial: Trial) -> bool:
    figures = trial.figures
    if figures is None or figures.failures or search.progress(trial) < 1:
        return False
    return violation(search.limits, figures) == 0


def _why(search: Search, best: Trial, release: Release, *, met: bool) -> list[str]:
    figures, goal = best.figures, search.terms.goal
    assert figures is not None
    said = [f"{goal} is {'met' if met else 'not met; this comes nearest'}: {_reached(figures)}."]
    said += [f"{limit.margin(figures)}: broken." for limit in search.limits if limit.excess(figures) > 0]
    if figures.failures:
        problem = next((sample.problem for sample in figures.samples if sample.problem), "")
        said.append(f"Requests that failed: {figures.failures}{', ' + problem if problem else ''}.")
    first = next((trial for trial in search.trials if trial.state is State.STARTED), None)
    if first is not None and first.number != best.number and first.figures is not None:
        said.append(_against_first(search, best, first))
    failed = [trial for trial in search.trials if trial.state is not State.STARTED]
    for trial in failed[-2:] if not met else ():
        said.append(f"{shown(trial.proposal.step, release)} does not start: {trial.reason}")
    return said


def _against_first(search: Search, best: Trial, first: Trial) -> str:
    assert best.figures is not None
    assert first.figures is not None
    change = noise_of(each.throughputs for each in search.trials).change(first.throughputs, best.throughputs)
    if change is Change.SAME or not first.figures.throughput:
        return "Output tokens a second: no difference beyond the noise against the first start."
    share = best.figures.throughput / first.figures.throughput - 1
    return f"Output tokens a second: {share:+.0%} against the first start."


def _reached(figures: Figures) -> str:
    parts = [f"{figures.throughput:.4g} output tokens/s"]
    if figures.max_model_len:
        parts.insert(0, f"requests of {figures.max_model_len:,} tokens")
    if figures.kv_tokens:
        parts.insert(1, f"{figures.kv_tokens:,} KV tokens")
    if figures.ttft is not None:
        parts.append(f"first token after {figures.ttft:.3g} s")
    return ", ".join(parts)


def _margin(search: Search, best: Trial) -> list[str]:
    """How far what is kept is from where it would fail."""
    figures, goal = best.figures, search.terms.goal
    assert figures is not None
    said = []
    length = goal.length or figures.max_model_len
    if figures.kv_tokens and length:
        needed = length * (goal.requests or 1)
        said.append(f"the pool holds {figures.kv_tokens / needed:.2f} times the {needed:,} tokens that are needed")
    if figures.peak is not None:
        peak = figures.peak
        of = "of the GPU" if peak.device == "gpu" else "of the machine's memory"
        said.append(f"{1 - peak.share:.0%} {of} were free at the peak")
    said += [_limit_margin(limit, figures) for limit in search.limits if limit.excess(figures) == 0]
    return said


def _limit_margin(limit: Limit, figures: Figures) -> str:
    value = limit.figure(figures)
    assert value is not None
    return f"{limit}: {limit.shown(value)}, {abs(limit.value - value) / limit.value:.0%} away"


def _refusals(search: Search) -> list[str]:
    """Why nothing served."""
    return [f"trial {trial.number}: {trial.reason}" for trial in search.trials[:3]]
