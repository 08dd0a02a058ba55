"""The load that ``kvroom.server`` puts on a server, as a trial's figures."""

from __future__ import annotations

import pytest
from tests.server.fake import Behaviour, FakeServer

from kvroom.trials.figures import Figures, Load, Sample, figures_of
from kvroom.trials.measuring import ServerMeasures
from kvroom.trials.supervise import free_port

LOAD = Load(50, 20, 4, 8)


def test_a_sample_has_the_figures_and_what_explains_them() -> None:
    with FakeServer(Behaviour(step_s=0.005)) as server:
        sample = ServerMeasures()(server.url, LOAD)

    assert sample.failures == 0
    assert sample.kv_tokens == 129 * 16
    assert sample.ttft is not None
    assert sample.tpot is not None
    assert sample.tpot > 0.0025
    assert sample.throughput > 1
    assert sample.preemptions == 0


def test_a_key_is_sent_and_a_wrong_one_is_no_traceback() -> None:
    with FakeServer(Behaviour(key="sk-right")) as server:
        assert ServerMeasures("sk-right")(server.url, LOAD).failures == 0
        wrong = ServerMeasures("sk-wrongkey")(server.url, LOAD)
    assert wrong.failures == 8
    assert wrong.problem
    assert "sk-wrongkey" not in wrong.problem


@pytest.mark.parametrize("how", ["500", "garbage", "cut"])
def test_requests_that_fail_are_counted_with_a_reason(how: str) -> None:
    with FakeServer(Behaviour(generation=how)) as server:
        sample = ServerMeasures(timeout=5)(server.url, LOAD)

    assert sample.failures
    assert sample.problem


def test_a_server_that_is_gone_fails_every_request() -> None:
    sample = ServerMeasures()(f"http://127.0.0.1:{free_port()}", LOAD)

    assert (sample.failures, sample.throughput) == (8, 0.0)
    assert sample.problem


def test_figures_come_back_as_they_were_stored() -> None:
    figures = Figures(1, 2, None, 3.0, (Sample(0.1, None, 5.0, problem="x"), Sample(None, None, 0.0, failures=2)))

    assert figures_of(figures.data()) == figures
    assert (figures.failures, figures.throughput, figures.ttft, figures.tpot) == (2, 2.5, 0.1, None)


def test_a_full_pool_is_told_by_preemptions_or_use() -> None:
    def full(**known: float) -> bool:
        return Figures(1, 1, None, 0.0, (Sample(0.1, 0.1, 1.0, **known),)).pool_was_full  # type: ignore[arg-type]

    assert full(preemptions=1)
    assert full(kv_peak=0.97)
    assert not full(kv_peak=0.5, preemptions=0)
