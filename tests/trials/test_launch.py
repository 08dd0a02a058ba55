"""One launch carried out: how often it is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest
from tests.trials.fakes import Listener

from kvroom.trials.figures import Load, Sample
from kvroom.trials.launch import PORT, Order, carry_out
from kvroom.trials.memory import HostMemory
from kvroom.trials.noise import Noise

LOAD = Load(50, 20, concurrency=4, requests=16)


@dataclass
class Rates:
    """Measures these speeds, one after the other, again and again."""

    rates: Iterator[float]
    loads: list[Load] = field(default_factory=list)

    def __call__(self, url: str, load: Load) -> Sample:
        """A sample."""
        self.loads.append(load)
        return Sample(0.1, 0.01, next(self.rates))


@pytest.mark.parametrize(
    ("rates", "repeats", "before", "times"),
    [
        pytest.param([100.0], 3, None, 3, id="steady"),
        pytest.param([100.0], 1, None, 1, id="one repeat tells no noise"),
        pytest.param([97.0, 103.0], 2, None, 5, id="until the mean is known"),
        pytest.param([50.0, 150.0], 2, None, 8, id="four times as often at most"),
        pytest.param([100.0], 2, 0.03, 4, id="other trials were noisy"),
    ],
)
def test_a_speed_is_measured_until_it_is_known(
    command: list[str], tmp_path: Path, rates: list[float], repeats: int, before: float | None, times: int
) -> None:
    assigned, *words = command
    order = Order(
        number=1,
        words=(*words, "--port", PORT),
        env=dict([assigned.split("=", 1)]),
        log=tmp_path / "log",
        load=LOAD,
        repeats=repeats,
        noise=Noise(before),
        timeout=60,
    )
    measures = Rates(cycle(rates))
    done = carry_out(order, measures, HostMemory(1 << 40), Listener())

    assert len(done.samples) == times
    assert [load.requests for load in measures.loads] == [4, *[16] * len(done.samples)]
