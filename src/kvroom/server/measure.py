"""One load on one server, measured: what a launcher asks after each start."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from kvroom.errors import ServerError
from kvroom.server.address import Access
from kvroom.server.basics import choose, models
from kvroom.server.client import Budget, Client
from kvroom.server.figures import Spread
from kvroom.server.generate import Ask
from kvroom.server.lengths import prompts_for
from kvroom.server.limits import Limit, Targets, limit_of
from kvroom.server.meter import Meter, watched
from kvroom.server.outcome import Failure
from kvroom.server.pool import Pool, measure_pool
from kvroom.server.step import Load, Step
from kvroom.server.workload import Workload


@dataclass(frozen=True, slots=True)
class Measured:
    """The four figures of a launch that can be had from outside, and how they came about."""

    model: str
    max_model_len: int | None
    step: Step
    pool: Pool | None
    limit: Limit | None
    """What the load met, None where it met nothing."""

    @property
    def ttft(self) -> Spread | None:
        """Seconds to the first token."""
        return self.step.ttft

    @property
    def tpot(self) -> Spread | None:
        """Seconds per output token after the first."""
        return self.step.tpot

    @property
    def output_rate(self) -> float:
        """Output tokens a second."""
        return self.step.output_rate

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV cache holds: measured, else claimed."""
        if self.pool is None:
            return None
        return self.pool.usable_tokens or (self.pool.claim.most_tokens if self.pool.claim else None)

    @property
    def failures(self) -> tuple[tuple[Failure, int], ...]:
        """Requests that failed, by kind."""
        return self.step.failures

    @property
    def served(self) -> bool:
        """Whether every request was answered."""
        return bool(self.step.done) and not self.step.failures


def measure(
    url: str,
    workload: Workload,
    *,
    concurrency: int,
    requests: int,
    access: Access | None = None,
    model: str | None = None,
    targets: Targets | None = None,
    warm_up: int = 1,
    pool: bool = True,
    timeout: float = 120.0,
    max_seconds: float = 600.0,
    seed: int = 0,
) -> Measured:
    """Send ``requests`` of ``workload``, ``concurrency`` at once, after ``warm_up`` that do not count.

    With ``pool`` the usable KV tokens are measured as well (one request more). Raises ServerError where no
    server answers, UsageError for a load that it does not take; requests that fail are in the result.
    """

    async def run() -> Measured:
        budget = Budget(requests + warm_up + 1, max_seconds)
        async with Client(url, access or Access(), budget) as client:
            served, listed = await models(client)
            if not served:
                raise ServerError(f"{url} serves no model: {listed.seen}.", listed.cure)
            one = choose(served, model)
            load = workload.within(one.max_model_len)
            meter = Meter(client)
            meter.absent = await meter.read() is None
            prompts = await prompts_for(client, one.name, seed)
            ask = Ask(model=one.name, prompt="", output=1)
            first = load.jobs[0]
            for _ in range(warm_up):
                warm = replace(ask, prompt=prompts.make(first.input_len), output=first.output_len)
                await watched(client, meter, warm, timeout)
            held = await measure_pool(client, meter, ask, prompts, one.max_model_len, timeout) if pool else None
            jobs = load.take(requests)
            step = await Load(client, meter, ask, prompts, timeout).step(jobs, concurrency)
            limit = limit_of(step, jobs, held, targets or Targets())
            return Measured(one.name, one.max_model_len, step, held, limit)

    return asyncio.run(run())
