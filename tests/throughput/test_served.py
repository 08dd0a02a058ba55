"""A server's own log as what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.throughput import RESULTS, Case, cases

from kvroom.errors import UsageError
from kvroom.throughput.estimate import Engine
from kvroom.throughput.factors import Factors
from kvroom.throughput.measured import read_measured
from kvroom.throughput.served import paces, scale_of_log

SERVED = json.loads((Path(__file__).parents[1] / "data" / "throughput" / "served.json").read_text("utf-8"))["rows"]


def line(prompt: float, generation: float, running: int, waiting: int, use: float, engine: str = "000") -> str:
    """Statistics as vLLM 0.19 logs them."""
    return (
        f"INFO 11-30 10:00:00 [loggers.py:259] Engine {engine}: Avg prompt throughput: {prompt:.1f} tokens/s, "
        f"Avg generation throughput: {generation:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
        f"GPU KV cache usage: {use:.1f}%, Prefix cache hit rate: 0.0%\n"
    )


@pytest.fixture(scope="module")
def case() -> Case:
    """The public run of which the statistics are, vLLM 0.19.0 on an RTX 4090."""
    return next(case for case in cases() if case.id == "llmservingsim RTX4090_Llama-3.1-8B")


@pytest.fixture(scope="module")
def engine(case: Case) -> Engine:
    """With factors that were fitted without this card."""
    known = json.loads(RESULTS.read_text("utf-8"))["without"][case.card_name]
    return Engine(case.costs, case.card, Factors(**known), case.limits)


def test_forty_seconds_of_a_real_log_bring_the_whole_run_nearer(case: Case, engine: Engine, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("".join(line(*row) for row in SERVED))

    scale = scale_of_log(engine, str(log))
    before, after = case.predict(engine.factors).tpot, case.predict(engine.factors, scale.factor).tpot
    assert scale.measured
    assert abs(after / case.measured["tpot"] - 1) < 0.06 < abs(before / case.measured["tpot"] - 1)


def test_a_log_of_steps_that_take_twice_as_long_says_two(engine: Engine, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    held = 8 * 1000 / engine.limits.pool_tokens * 100
    step = 2 * engine.step(8, 1000, 0, 0)
    log.write_text(line(0, 8 / step, 8, 0, held) * 5)

    assert scale_of_log(engine, str(log)).factor == pytest.approx(2, rel=0.02)


def test_only_steady_stretches_of_one_engine_count() -> None:
    def of(*lines: str) -> int:
        return len(paces([each.encode() for each in lines], 10_000))

    steady = line(0, 100, 10, 0, 20)
    assert of(steady, steady, steady) == 2
    assert of(steady, "INFO something else\n", steady) == 1
    assert of(steady, line(0, 100, 20, 0, 20)) == 0  # twice as many
    assert of(steady, line(0, 0, 10, 0, 20)) == 0  # nothing came
    assert of(steady, line(0, 100, 10, 0, 0)) == 0  # the use of the cache is not told
    assert of(steady, line(0, 100, 10, 0, 20, "001")) == 0
    assert of(steady, line(0, 100, 10, 0, 20, "001"), steady, line(0, 50, 10, 0, 20, "001")) == 2


def test_replicas_in_one_line_are_taken_apart() -> None:
    """vLLM adds up their requests and rates, and averages how full their caches are."""
    alone = [line(50, 100, 10, 0, 20).encode()] * 2
    together = [line(100, 200, 20, 0, 20).replace("Engine 000", "2 Engines Aggregated").encode()] * 2
    assert paces(together, 10_000) == paces(alone, 10_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing of the kind\n", "0 stretches"),
        (line(0, 100, 10, 0, 20) * 3, "2 stretches"),
        (line(0, 1, 30, 0, 20) * 9, "times what is predicted"),
    ],
)
def test_a_log_that_tells_nothing_is_one_error(text: str, said: str, engine: Engine, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(text)
    assert read_measured(str(log)) is None
    with pytest.raises(UsageError, match=said):
        scale_of_log(engine, str(log))


def test_a_file_that_is_not_there_is_one_error(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        read_measured(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="cannot be used"):
        scale_of_log(engine, str(tmp_path))


def test_many_replicas_with_few_requests_are_no_error(engine: Engine, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    step = engine.step(1, 500, 0, 0)
    held = 500 / engine.limits.pool_tokens * 100 / 8
    log.write_text(line(0, 3 / step, 3, 0, held).replace("Engine 000", "8 Engines Aggregated") * 5)
    assert scale_of_log(engine, str(log)).measured
