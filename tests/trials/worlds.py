"""Machines that never were: what a launch measures there is a formula, so that a search can be judged in a moment."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvroom.trials.figures import Figures, Load, Peak, Sample
from kvroom.trials.goal import parse_goal, parse_limit
from kvroom.trials.launch import is_unsteady
from kvroom.trials.noise import noise_of
from kvroom.trials.platform import Platform
from kvroom.trials.search import Search
from kvroom.trials.trial import Forecast, Proposal, State, Trial
from kvroom.trials.ways import Terms
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release

RELEASE = Release(0, 32, 0)
GIB = 1 << 30


def saturating(knee: float, batch: float = 1.0, fall: float = 0.0) -> Callable[[int, int], float]:
    """Throughput that rises with the sequences up to ``knee`` and little after, and with the batch's doublings."""

    def speed(seqs: int, batched: int) -> float:
        rise = seqs / (seqs + knee)
        past = max(0.0, seqs / knee - 4) * fall
        return 1000 * max(0.05, rise - past) * batch ** math.log2(batched / 2048)

    return speed


@dataclass
class World:
    """One machine with one model: 100 KiB a token."""

    speed: Callable[[int, int], float] = field(default_factory=lambda: saturating(16))
    pool: int = 4 * GIB
    """Bytes for the cache at utilisation 0.9; each hundredth more brings a hundredth of 24 GiB."""
    noise: float = 0.0
    seed: int = 0
    breaks: Callable[[Mapping[str, Any]], str] = lambda changes: ""
    """Why a launch with these changes does not start, empty where it does."""
    per_token: int = 100 << 10
    ttft: Callable[[int, int], float] = lambda seqs, batched: 0.1
    foresees: bool = True
    remedies: tuple[Mapping[str, Any], ...] = ()
    finding: str = "KVR203 one-request-does-not-fit"

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.number = 0
        self.launched: list[Proposal] = []
        self.rates: list[list[float]] = []

    def trial(self, proposal: Proposal) -> Trial:
        """What comes of a launch."""
        self.number += 1
        changes = proposal.changes
        length = int(changes.get("max_model_len") or 4096)
        share = float(changes.get("gpu_memory_utilization") or 0.9)
        pool = self.pool + int((share - 0.9) * 24 * GIB) + int(changes.get("cpu_offload_gb") or 0) * GIB
        tokens = pool // (self.per_token // (2 if changes.get("kv_cache_dtype") == "fp8" else 1))
        needed = length * self.per_token // (2 if changes.get("kv_cache_dtype") == "fp8" else 1)
        fits = needed <= pool
        told = Forecast(
            "fits" if fits else "fails", None if fits else "kv_sizing", "too small", pool, needed, tokens, tokens
        )
        forecast = told if self.foresees else Forecast()
        if not fits and self.foresees:
            return Trial(number=self.number, proposal=proposal, state=State.SKIPPED, forecast=forecast, reason="short")
        self.launched.append(proposal)
        why = self.breaks(changes) or ("" if fits else "too small")
        if why:
            return Trial(
                number=self.number,
                proposal=proposal,
                state=State.FAILED,
                forecast=forecast,
                reason=why,
                finding=self.finding,
                remedies=self.remedies,
            )
        figures = Figures(tokens, length, Peak(20 * GIB, 24 * GIB), 30.0, tuple(self.samples(changes)))
        return Trial(number=self.number, proposal=proposal, state=State.STARTED, forecast=forecast, figures=figures)

    def samples(self, changes: Mapping[str, Any]) -> list[Sample]:
        """Two repeats, or as many as a launch is measured."""
        seqs, batched = int(changes.get("max_num_seqs") or 256), int(changes.get("max_num_batched_tokens") or 2048)
        noise, rates = noise_of(self.rates), list[float]()
        while len(rates) < 2 or is_unsteady(rates, 2, noise):
            rates.append(self.speed(seqs, batched) * self.random.gauss(1, self.noise))
        self.rates.append(rates)
        return [Sample(self.ttft(seqs, batched), 0.02, rate, kv_peak=0.3) for rate in rates]


def searched(
    world: World,
    goal: str,
    *flags: str,
    limits: tuple[str, ...] = (),
    most: int = 16,
    width: int = 1,
    kind: str = "gpu",
    concurrency: int = 64,
    keep: frozenset[str] = frozenset(),
) -> Search:
    """A search in ``world`` that has ended."""
    args = parse_serve_args(["model", *flags], {}, release=RELEASE)
    terms = Terms(parse_goal(goal), Platform(kind, 20 * GIB), args, keep)
    load = Load(256, 128, concurrency, 2 * concurrency)
    search = Search(terms, [parse_limit(each) for each in limits], load, most=most, width=width)
    asking = search.run()
    try:
        proposals = next(asking)
        while True:
            proposals = asking.send([world.trial(each) for each in proposals])
    except StopIteration:
        return search
