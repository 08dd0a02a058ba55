"""One step of a load: so many requests, so many at once, and what they came to."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvroom.server.client import Client
from kvroom.server.figures import Spread, spread
from kvroom.server.generate import Ask, Progress, generate
from kvroom.server.lengths import Prompts
from kvroom.server.meter import EVERY_S, Meter, Stall
from kvroom.server.metrics import Sample
from kvroom.server.outcome import Failed, Failure, Outcome
from kvroom.server.workload import Job

_LOST = {Failure.UNREACHABLE, Failure.DROPPED}


@dataclass(frozen=True, slots=True)
class Step:
    """Requests sent at one concurrency. Times in seconds, rates per second."""

    concurrency: int | None
    """None: sent when the trace says, however many are under way."""
    outcomes: tuple[Outcome, ...]
    duration: float
    """From the first request to the last token of the last answer, as ``vllm bench serve`` takes it."""
    samples: tuple[Sample, ...] = ()
    """``/metrics``, from before the first request to after the last."""
    given_up: Failed | None = None
    """Why it was ended early."""
    client_busy: float = 0.0
    """Share of the time in which kvroom itself computed; near 1 it is the bottleneck."""

    @property
    def done(self) -> tuple[Outcome, ...]:
        """The requests that were answered."""
        return tuple(outcome for outcome in self.outcomes if outcome.ok)

    @property
    def failures(self) -> tuple[tuple[Failure, int], ...]:
        """How many requests failed, by kind, the most frequent first."""
        return tuple(Counter(o.failure for o in self.outcomes if o.failure is not None).most_common())

    @property
    def input_tokens(self) -> int:
        """Of the answered requests."""
        return sum(outcome.prompt_tokens for outcome in self.done)

    @property
    def output_tokens(self) -> int:
        """Of the answered requests."""
        return sum(outcome.output_tokens for outcome in self.done)

    @property
    def output_rate(self) -> float:
        """Output tokens a second."""
        return self.output_tokens / self.duration if self.duration else 0.0

    @property
    def ttft(self) -> Spread | None:
        """Time to the first token."""
        return spread(outcome.ttft for outcome in self.done)

    @property
    def tpot(self) -> Spread | None:
        """Time per output token after the first: (latency - TTFT) / (output tokens - 1), request by request."""
        return spread(outcome.tpot for outcome in self.done)

    @property
    def itl(self) -> Spread | None:
        """Time between the chunks of an answer, over all requests."""
        return spread(itl for outcome in self.done for itl in outcome.itls)

    @property
    def latency(self) -> Spread | None:
        """Time to the last token."""
        return spread(outcome.latency for outcome in self.done)

    @property
    def running(self) -> int | None:
        """The most that ran at once, of the samples."""
        return max((sample.running for sample in self.samples if sample.running is not None), default=None)

    @property
    def waiting(self) -> int | None:
        """The most that waited at once."""
        return max((sample.waiting for sample in self.samples if sample.waiting is not None), default=None)

    @property
    def kv_use(self) -> float | None:
        """The largest part of the KV cache in use, 0 to 1."""
        return max((sample.kv_use for sample in self.samples if sample.kv_use is not None), default=None)

    def counted(self, name: str) -> int | None:
        """By how much the counter ``name`` of the samples rose."""
        values = [value for sample in self.samples if (value := getattr(sample, name)) is not None]
        return max(values[-1] - values[0], 0) if len(values) > 1 else None

    @property
    def prefix_hit_rate(self) -> float | None:
        """Part of the prompt tokens found in the cache."""
        queries, hits = self.counted("prefix_queries"), self.counted("prefix_hits")
        return None if not queries or hits is None else hits / queries


class Load:
    """Sends jobs to one model."""

    def __init__(self, client: Client, meter: Meter, ask: Ask, prompts: Prompts, seconds: float) -> None:
        self._client, self._meter, self._ask, self._prompts = client, meter, ask, prompts
        self._seconds = seconds
        self.chat_overhead = 0
        """Tokens that the chat template adds to a message, where that is known."""

    async def step(self, jobs: Sequence[Job], concurrency: int | None) -> Step:
        """The jobs, ``concurrency`` at once, or each at its arrival where that is None.

        Prompts are made before the clock starts. It ends early once nothing is scheduled any more, or once
        the server is gone.
        """
        asks = [self._asked(job) for job in jobs]
        before = await self._meter.read()
        async with self._meter.running() as samples:
            busy, began = time.process_time(), time.perf_counter()
            progresses = [Progress() for _ in asks]
            seats = asyncio.Semaphore(concurrency or len(asks))
            lanes = [
                asyncio.create_task(self._one(ask, progress, seats, began, job))
                for ask, progress, job in zip(asks, progresses, jobs, strict=True)
            ]
            given_up = await self._watched(lanes, progresses, samples)
            duration = time.perf_counter() - began
            busy = (time.process_time() - busy) / duration
        outcomes = [
            progress.outcome(given_up) if lane.cancelled() else lane.result()
            for lane, progress in zip(lanes, progresses, strict=True)
            if progress.sent
        ]
        after = await self._meter.read()
        kept = [sample for sample in (before, *samples, after) if sample is not None]
        return Step(concurrency, tuple(outcomes), duration, tuple(dict.fromkeys(kept)), given_up, busy)

    def _asked(self, job: Job) -> Ask:
        if self._ask.chat:
            text = self._prompts.text(max(job.input_len - self.chat_overhead, 1))
            return replace(self._ask, prompt=text, output=job.output_len)
        return replace(self._ask, prompt=self._prompts.make(job.input_len), output=job.output_len)

    async def _one(self, ask: Ask, progress: Progress, seats: asyncio.Semaphore, began: float, job: Job) -> Outcome:
        due = began
        if job.arrival is not None:
            due = began + job.arrival
            await asyncio.sleep(max(due - time.perf_counter(), 0.0))
        async with seats:
            waited = time.perf_counter() - due
            outcome = await generate(self._client, ask, self._seconds, progress)
        if outcome.ok and not outcome.prompt_tokens:
            outcome = replace(outcome, prompt_tokens=job.input_len)
        return replace(outcome, waited=waited)

    async def _watched(
        self, lanes: Sequence[asyncio.Task[Outcome]], progresses: Sequence[Progress], samples: Sequence[Sample]
    ) -> Failed | None:
        """Wait for the requests; why, if they were given up."""
        stall, given_up = self._meter.stall(), None
        pending = set(lanes)
        try:
            while pending and given_up is None:
                done, pending = await asyncio.wait(pending, timeout=EVERY_S, return_when=asyncio.FIRST_COMPLETED)
                if any(lane.result().failure in _LOST for lane in done) and not await self._alive():
                    given_up = Failed(Failure.DROPPED, "the server is gone")
                elif pending:
                    given_up = self._hopeless(stall, progresses, samples)
        finally:
            for lane in pending:
                lane.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        return given_up

    def _hopeless(self, stall: Stall, progresses: Sequence[Progress], samples: Sequence[Sample]) -> Failed | None:
        """Why nothing more is to be waited for."""
        under_way = [progress for progress in progresses if progress.sent and not progress.ended]
        if not under_way:
            return None if self._client.budget.time_left else Failed(Failure.BUDGET, "the time allowed is over")
        if self._meter.absent:
            return None  # only the time limits are left
        last = max(progress.last or progress.started for progress in progresses if progress.sent)
        sample = samples[-1] if samples and not self._meter.problem else None
        why = stall.seen(sample, last, time.perf_counter())
        return Failed(Failure.STUCK, why) if why else None

    async def _alive(self) -> bool:
        try:
            return (await self._client.ask("GET", "/health")).status < 500
        except Failed:
            return False
