"""The run of requests through the engine: by hand where that can be, by its laws elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.throughput.run import Limits, Outcome, Request, run
from kvroom.throughput.workload import capped, fixed, poisson, spread, varied

WIDE = Limits(sequences=256, step_tokens=2048, pool_tokens=1_000_000)


def _constant(decodes: int, context: float, chunk: int, before: float) -> float:
    return 1.0


def _by_tokens(decodes: int, context: float, chunk: int, before: float) -> float:
    return 0.001 * (decodes + chunk) + 1e-6 * decodes * context


def test_one_request_by_hand() -> None:
    found = run(fixed(1, 100, 5), WIDE, _constant)
    assert found.ttft == 1.0  # one step for the prompt
    assert found.tpot == 1.0
    assert found.duration == 5.0  # the prompt's step gives the first token, four more follow
    assert found.throughput == 1.0


def test_a_long_prompt_is_cut_into_chunks() -> None:
    assert run(fixed(1, 5000, 2), WIDE, _constant).ttft == 3.0  # 2048 + 2048 + 904


def test_prompts_share_a_step() -> None:
    found = run(fixed(4, 512, 3), WIDE, _constant)
    assert [request.ttft for request in found.requests] == [1.0, 1.0, 1.0, 1.0]
    assert found.duration == 3.0


def test_sequences_beyond_the_limit_wait() -> None:
    found = run(fixed(4, 10, 3), Limits(2, 2048, 1_000_000), _constant)
    assert [request.first for request in found.requests] == [1.0, 1.0, 4.0, 4.0]


def test_a_full_pool_makes_requests_wait_or_start_again() -> None:
    found = run(fixed(8, 100, 100), Limits(256, 2048, 450), _by_tokens)
    assert found.preemptions > 0
    assert all(request.last > 0 for request in found.requests)
    free = run(fixed(8, 100, 100), WIDE, _by_tokens)
    assert free.preemptions == 0
    assert free.duration < found.duration


def test_a_request_larger_than_the_pool_still_runs_alone() -> None:
    assert run(fixed(2, 500, 10), Limits(256, 2048, 100), _constant).requests[1].last > 0


def test_concurrency_keeps_so_many_in_the_server() -> None:
    found = run(fixed(20, 10, 10), WIDE, _constant, 4)
    for request in found.requests:
        inside = sum(other.arrival <= request.arrival < other.last for other in found.requests)
        assert inside <= 4


def test_arrivals_are_waited_for() -> None:
    requests = [Request(0.0, 10, 2), Request(100.0, 10, 2)]
    found = run(requests, WIDE, _constant)
    assert found.requests[1].first == 101.0
    assert found.duration == 102.0


@given(
    st.lists(st.tuples(st.floats(0, 50), st.integers(1, 3000), st.integers(1, 200)), min_size=1, max_size=40),
    st.integers(1, 16),
    st.integers(64, 4096),
    st.integers(300, 20_000),
)
@settings(deadline=None, max_examples=150)
def test_every_request_is_served_once_and_in_time(
    asked: list[tuple[float, int, int]], sequences: int, step_tokens: int, pool: int
) -> None:
    requests = [Request(arrival, prompt, answer) for arrival, prompt, answer in asked]
    found: Outcome = run(requests, Limits(sequences, max(step_tokens, sequences), pool), _by_tokens)
    for request in found.requests:
        assert request.made == request.answer
        assert request.arrival < request.first <= request.last <= found.duration + 1e-9
        assert request.tpot >= 0
    assert found.throughput * found.duration == pytest.approx(sum(answer for _, _, answer in asked))


@given(st.integers(1, 400), st.floats(5, 3000), st.floats(5, 800))
@settings(deadline=None, max_examples=40)
def test_workloads_have_the_means_asked_for(count: int, prompt: float, answer: float) -> None:
    made = spread(count, prompt, answer)
    assert len(made) == count
    assert sum(request.prompt for request in made) / count == pytest.approx(prompt, rel=0.05, abs=1)
    assert sum(request.answer for request in made) / count == pytest.approx(answer, rel=0.05, abs=1)


def test_the_other_workloads() -> None:
    limited = capped(50, 100, 443, 600)
    assert max(request.answer for request in limited) == 600
    assert sum(request.answer for request in limited) / 50 == pytest.approx(443, abs=1)
    mixed = varied(40, 100, 200)
    assert sum(request.answer for request in mixed) / 40 == pytest.approx(200, rel=0.01)
    arriving = poisson(fixed(200, 10, 10), 4.0, 46.5)
    assert arriving[-1].arrival == pytest.approx(46.5)
    assert arriving == poisson(fixed(200, 10, 10), 4.0, 46.5)
