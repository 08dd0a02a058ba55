"""Steps as they could have been, and the limit that they show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvroom.server.limits import Cause, Targets, limit_of, meets
from kvroom.server.metrics import Claim, Sample
from kvroom.server.outcome import Failed, Failure, Outcome
from kvroom.server.pool import Pool
from kvroom.server.step import Step
from kvroom.server.workload import Job

JOBS = [Job(100, 50)] * 8
POOL = Pool(Claim(16, 101, 1616), usable_tokens=1600, usable_blocks=100, exact=True)
NONE = Targets()


def sample(at: float, running: int, waiting: int, use: float, preempted: int = 0) -> Sample:
    return Sample(at=at, running=running, waiting=waiting, kv_use=use, preemptions=preempted)


def step(*samples: Sample, ttft: float = 0.1, concurrency: int = 8) -> Step:
    done = Outcome(ttft=ttft, latency=ttft + 0.49, output_tokens=50, prompt_tokens=100, finish="length")
    return Step(concurrency, (done,) * 8, 2.0, samples)


def test_nothing_is_met_while_all_run() -> None:
    assert limit_of(step(sample(0, 8, 0, 0.5), sample(1, 8, 0, 0.6)), JOBS, POOL, NONE) is None


def test_preemptions_are_the_pool() -> None:
    limit = limit_of(step(sample(0, 8, 0, 0.5, 3), sample(1, 8, 0, 0.6, 10)), JOBS, POOL, NONE)

    assert limit is not None
    assert limit.cause is Cause.KV_POOL
    assert limit.evidence.startswith("7 preemptions")
    assert ("--kv-cache-dtype", "fp8") in [change.flags for change in limit.changes]


def test_waiting_for_blocks_is_the_pool_although_some_are_free() -> None:
    limit = limit_of(step(sample(0, 4, 4, 0.95), sample(1, 4, 4, 0.95)), JOBS, POOL, NONE)

    assert limit is not None
    assert limit.cause is Cause.KV_POOL


def test_waiting_for_seats_is_max_num_seqs() -> None:
    limit = limit_of(step(sample(0, 4, 4, 0.4), sample(1, 4, 4, 0.5), sample(2, 4, 0, 0.4)), JOBS, POOL, NONE)

    assert limit is not None
    assert limit.cause is Cause.SEATS
    assert limit.changes[0].flags == ("--max-num-seqs", "8")


def test_waiting_while_seats_and_blocks_are_free_is_the_reading_of_prompts() -> None:
    samples = [sample(i, running, 8 - running, 0.3) for i, running in enumerate((1, 3, 5, 7))]
    limit = limit_of(step(*samples), JOBS, POOL, NONE)

    assert limit is not None
    assert limit.cause is Cause.PREFILL


def test_one_sample_of_a_queue_proves_nothing() -> None:
    assert limit_of(step(sample(0, 4, 4, 0.4), sample(1, 8, 0, 0.5)), JOBS, POOL, NONE) is None


@pytest.mark.parametrize(
    ("targets", "cause"),
    [(Targets(ttft=0.05), Cause.TTFT), (Targets(tpot=0.009), Cause.TPOT), (Targets(ttft=0.2, tpot=0.011), None)],
)
def test_a_target_that_is_missed_is_a_limit(targets: Targets, cause: Cause | None) -> None:
    one = step(sample(0, 8, 0, 0.5))
    limit = limit_of(one, JOBS, POOL, targets)

    assert (limit.cause if limit else None) is cause
    assert meets(one, targets) == (cause is None)


def test_a_missed_target_is_told_beside_what_caused_it() -> None:
    limit = limit_of(step(sample(0, 8, 0, 1.0), sample(1, 8, 0, 1.0, 4)), JOBS, POOL, Targets(ttft=0.05))

    assert limit is not None
    assert limit.cause is Cause.KV_POOL
    assert limit.also == ("TTFT 100 ms at the 95th percentile, target 50 ms",)


def test_failures_come_first() -> None:
    broken = Outcome(failure=Failure.SERVER_ERROR, message="EngineCore encountered an issue.", status=500)
    one = step(sample(0, 8, 0, 0.5, 0), sample(1, 8, 0, 1.0, 9))
    limit = limit_of(replace(one, outcomes=(*one.outcomes, broken)), JOBS, POOL, NONE)

    assert limit is not None
    assert limit.cause is Cause.FAILURES
    assert "1 server_error of 9 requests; the first: EngineCore" in limit.evidence


@pytest.mark.parametrize(("kind", "cause"), [(Failure.DROPPED, Cause.GONE), (Failure.STUCK, Cause.STUCK)])
def test_a_step_that_was_given_up(kind: Failure, cause: Cause) -> None:
    one = replace(step(sample(0, 8, 0, 0.5)), given_up=Failed(kind, "so it was"))
    limit = limit_of(one, JOBS, POOL, NONE)

    assert limit is not None
    assert limit.cause is cause
