"""What a measured run says of other loads."""

from __future__ import annotations

import pytest
from tests.throughput.test_estimate import LLAMA

from kvroom.errors import UsageError
from kvroom.throughput.estimate import Load, estimate, scale_of
from kvroom.throughput.scale import Scale


def test_a_factor_counts_in_full_where_it_was_measured_and_fades_with_distance() -> None:
    scale = Scale(2.0, measured=True, near=0.01)
    assert scale.at(0.01).factor == pytest.approx(2.0)
    says = [scale.at(0.01 * times).factor for times in (1, 2, 4, 8)]
    assert says == sorted(says, reverse=True)
    assert says[-1] > 1
    assert scale.at(0.02).factor == pytest.approx(scale.at(0.005).factor)


def test_nothing_measured_says_nothing() -> None:
    assert Scale().at(0.02) == Scale()


def test_the_load_that_was_measured_is_told_as_it_was() -> None:
    load = Load(1024, 128)
    plain = estimate(LLAMA, load, (8, 64)).rows
    scale = scale_of(LLAMA, load, 8, 2 * plain[0].tpot)
    eight, many = estimate(LLAMA, load, (8, 64), scale=scale).rows
    assert eight.tpot == pytest.approx(2 * plain[0].tpot, rel=0.01)
    assert many.tpot / plain[1].tpot < 2


def test_a_measured_load_that_the_server_does_not_take_is_refused() -> None:
    with pytest.raises(UsageError, match="longer than max_model_len"):
        scale_of(LLAMA, Load(999_999_999, 128), 1, 0.012)
