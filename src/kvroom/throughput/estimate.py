"""How fast a launch serves a load: four figures for each batch, where it turns to compute, what the pool allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kvroom.errors import UsageError
from kvroom.ledger.predict import Prediction
from kvroom.throughput.card import Card, card_of
from kvroom.throughput.costs import Costs, costs_of
from kvroom.throughput.factors import Factors, Fit, fitted
from kvroom.throughput.run import Limits, Outcome, run
from kvroom.throughput.scale import Scale, believable
from kvroom.throughput.step import computing_seconds, reading_seconds, step_seconds
from kvroom.throughput.workload import fixed, poisson, varied

_MOST_REQUESTS = 1500
_MEETING = 0.9
"""Share of requests that must meet a target."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of the server: equal requests."""

    prompt: int
    answer: int


@dataclass(frozen=True, slots=True)
class Row:
    """One number of requests at once. Seconds; answer tokens a second of all replicas."""

    concurrency: int
    ttft: float
    tpot: float
    throughput: float
    memory_share: float
    """Of a decoding step, reading over the longer of reading and computing: 1 where memory decides."""
    preemptions: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """The answer for one launch and load."""

    prediction: Prediction
    card: Card
    costs: Costs
    load: Load
    rows: tuple[Row, ...]
    turns_at: int | None
    """Sequences from which a decoding step is bound by arithmetic; None where the pool ends before."""
    pool_batch: int
    """Requests of the load that the pool holds at once, all replicas together."""
    prompt_rate: float
    """Prompt tokens a second of one replica while nothing decodes."""
    goodput: float | None
    """Requests a second at which nine of ten meet the targets; None without targets, 0 where even one misses."""
    scale: Scale
    fit: Fit

    def interval(self, figure: str) -> tuple[float, float]:
        """Factors around a figure (``tpot``, ``ttft``, ``throughput``) that hold 80 of 100 launches."""
        if self.scale.measured:
            return self.fit.after_one
        found: tuple[float, float] = getattr(self.fit, figure)
        return found


@dataclass(frozen=True)
class Engine:
    """One replica of a launch, ready to run loads."""

    costs: Costs
    card: Card
    factors: Factors
    limits: Limits
    scale: Scale = field(default_factory=Scale)

    def step(self, decodes: int, context: float, chunk: int, before: float) -> float:
        """Seconds of one step."""
        return self.scale.factor * step_seconds(self.costs, self.card, self.factors, decodes, context, chunk, before)

    def closed(self, load: Load, concurrency: int) -> Outcome:
        """``concurrency`` requests at once, each replaced when it ends, over all replicas."""
        each = -(-concurrency // self.costs.dp)
        count = min(max(4 * each, 8), max(_MOST_REQUESTS, 2 * each))
        found = run(varied(count, load.prompt, load.answer), self.limits, self.step, each)
        later = sorted(found.requests, key=lambda request: request.arrival)[each:]  # the first come all at once
        return replace(
            found,
            ttft=sum(request.ttft for request in later) / len(later),
            tpot=sum(request.tpot for request in later) / len(later) if load.answer > 1 else 0.0,
            throughput=found.throughput * concurrency / each,
        )

    def meets(self, load: Load, rate: float, ttft: float | None, tpot: float | None) -> float:
        """The share of requests that meet the targets when they come at random, ``rate`` a second to all replicas."""
        requests = poisson(fixed(300, load.prompt, load.answer), rate / self.costs.dp)
        found = run(requests, self.limits, self.step)
        good = [
            request
            for request in found.requests
            if (ttft is None or request.ttft <= ttft) and (tpot is None or request.tpot <= tpot)
        ]
        return len(good) / len(found.requests)


def engine_of(prediction: Prediction, factors: Factors | None = None, scale: Scale | None = None) -> Engine:
    """The engine of a launch; DeviceError for a card without figures, UsageError where it does not start."""
    card = card_of(prediction.setup.machine.device)
    settings, pool = prediction.settings, prediction.pool
    if settings is None or pool is None or not pool.fits or settings.is_pooling:
        why = prediction.verdict.message or "it makes no text"
        raise UsageError(f"This launch serves nothing: {why}", "`kvroom plan` offers what to change.")
    limits = Limits(
        settings.max_num_seqs, settings.max_num_batched_tokens, max(pool.tokens, 1), settings.enable_prefix_caching
    )
    return Engine(costs_of(prediction), card, factors or fitted().factors, limits, scale or Scale())


def estimate(
    prediction: Prediction,
    load: Load,
    concurrencies: Sequence[int] = (),
    *,
    ttft: float | None = None,
    tpot: float | None = None,
    scale: Scale | None = None,
) -> Estimate:
    """The figures of ``prediction`` under ``load`` (none given: powers of two up to what pool and flags allow)."""
    engine = engine_of(prediction, scale=scale)
    settings, layout, pool = prediction.settings, prediction.layout, prediction.pool
    assert settings is not None
    assert layout is not None
    assert pool is not None
    held = load.prompt + load.answer
    _check_length(load, settings.max_model_len)
    ratio = (
        layout.request_blocks(settings.max_model_len) / max(layout.request_blocks(held), 1) if layout.groups else 1.0
    )
    batch = max(1, math.floor(pool.max_concurrency * ratio)) if layout.groups else settings.max_num_seqs
    batch *= engine.costs.dp
    most = min(batch, settings.max_num_seqs * engine.costs.dp)
    asked = tuple(concurrencies) or (*(1 << power for power in range(11) if 1 << power < most), most)
    rows = tuple(_row(engine, load, count) for count in asked)
    goodput = _goodput(engine, load, ttft, tpot) if ttft is not None or tpot is not None else None
    chunk = min(load.prompt, settings.max_num_batched_tokens)
    return Estimate(
        prediction,
        engine.card,
        engine.costs,
        load,
        rows,
        _turn(engine, load, most),
        batch,
        chunk / engine.step(0, 0.0, chunk, chunk / 2),
        goodput,
        engine.scale,
        fitted(),
    )


def _check_length(load: Load, longest: int) -> None:
    if load.prompt + load.answer > longest:
        raise UsageError(
            f"A request of {load.prompt + load.answer:,} tokens is longer than max_model_len ({longest:,}).",
            "Lower --input-len or --output-len (input and output of --measured), or raise --max-model-len.",
        )


def _row(engine: Engine, load: Load, concurrency: int) -> Row:
    if engine.scale.measured:
        engine = replace(engine, scale=engine.scale.at(replace(engine, scale=Scale()).closed(load, concurrency).tpot))
    found = engine.closed(load, concurrency)
    each, context = -(-concurrency // engine.costs.dp), load.prompt + load.answer / 2
    reading = reading_seconds(engine.costs, engine.card, engine.factors, each, context, 0, 0)
    computing = computing_seconds(engine.costs, engine.card, engine.factors, each, context, 0, 0)
    return Row(
        concurrency,
        found.ttft,
        found.tpot,
        found.throughput,
        reading / max(reading, computing),
        found.preemptions,
    )


def _turn(engine: Engine, load: Load, most: int) -> int | None:
    """The first batch, by doubling and halving, whose arithmetic takes longer than its reading."""
    context = load.prompt + load.answer / 2

    def computes(count: int) -> bool:
        arguments = (engine.costs, engine.card, engine.factors, count, context, 0.0, 0.0)
        return computing_seconds(*arguments) >= reading_seconds(*arguments)

    low, high = 0, max(1, most // engine.costs.dp)
    if not computes(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if computes(middle) else (middle, high)
    return high * engine.costs.dp


def _goodput(engine: Engine, load: Load, ttft: float | None, tpot: float | None) -> float:
    """The highest rate at which nine of ten requests meet the targets."""
    rate = 1.0 / max(engine.closed(load, 1).duration / 8, 1e-6)
    if engine.meets(load, rate / 20, ttft, tpot) < _MEETING:
        return 0.0
    while engine.meets(load, rate, ttft, tpot) >= _MEETING and rate < 1e5:
        rate *= 2
    low, high = 0.0, rate
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (middle, high) if engine.meets(load, middle, ttft, tpot) >= _MEETING else (low, middle)
    return low


def steady(engine: Engine, load: Load, concurrency: int) -> tuple[float, float, float]:
    """TTFT, TPOT and answer tokens a second with ``concurrency`` requests at once, without a run: for searches.

    In the time of one request each of the others is prefilled once.
    """
    each = max(1, -(-concurrency // engine.costs.dp))
    context = load.prompt + load.answer / 2
    alone = engine.step(each, context, 0, 0.0)
    budget = max(1, engine.limits.step_tokens - each)
    chunks = max(1, -(-load.prompt // budget))
    chunk = -(-load.prompt // chunks)
    filled = engine.step(each, context, chunk, load.prompt / 2)
    extra = chunks * max(0.0, filled - alone)
    tpot = alone + (each - 1) * extra / max(load.answer, 1)
    ttft = alone / 2 + chunks * filled
    throughput = concurrency * load.answer / (ttft + (load.answer - 1) * tpot)
    return ttft, tpot, throughput


def scale_of(prediction: Prediction, load: Load, concurrency: int, tpot: float) -> Scale:
    """What a measured run of ``load`` on this very machine says of all others."""
    engine = engine_of(prediction)
    assert prediction.settings is not None
    _check_length(load, prediction.settings.max_model_len)
    found = engine.closed(load, concurrency)
    factor = tpot / found.tpot if found.tpot else 1.0
    for _ in range(4):  # longer steps let more requests meet, so that one division is not enough
        again = replace(engine, scale=Scale(factor)).closed(load, concurrency)
        factor *= tpot / again.tpot if again.tpot and 0.05 < factor < 20 else 1.0
    return believable(factor, found.tpot, f"a measured TPOT of {1000 * tpot:g} ms")
