from __future__ import annotations

import random

import pytest

from kvroom.trials.noise import Change, Noise, noise_of


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ([100, 102], [120, 122], Change.BETTER),
        ([120, 122], [100, 102], Change.WORSE),
        ([100, 102], [102, 101], Change.SAME),
        ([], [100], Change.SAME),
        ([0.0], [5.0], Change.BETTER),
    ],
)
def test_a_difference_counts_beyond_the_noise(before: list[float], after: list[float], change: Change) -> None:
    assert noise_of([before, after] if before else []).change(before, after) is change


def test_less_than_two_percent_is_no_difference_however_quiet_the_machine() -> None:
    assert Noise(0.0).change([100.0] * 5, [101.9] * 5) is Change.SAME


def test_single_repeats_tell_no_noise_and_five_percent_is_taken() -> None:
    assert noise_of([[100.0], [90.0]]).deviation is None
    assert Noise(None).change([100.0], [104.0]) is Change.SAME
    assert Noise(None).change([100.0], [107.0]) is Change.BETTER


def test_the_same_launch_is_seldom_called_different() -> None:
    source = random.Random(1)
    trials = [[source.gauss(100, 5) for _ in range(3)] for _ in range(200)]
    noise = noise_of(trials)
    wrong = sum(noise.change(a, b) is not Change.SAME for a, b in zip(trials[::2], trials[1::2], strict=True))

    assert noise.deviation == pytest.approx(0.05, rel=0.15)
    assert wrong <= 10


def test_a_real_difference_is_nearly_always_seen() -> None:
    source = random.Random(2)
    found = 0
    for _ in range(100):
        before, after = ([source.gauss(mean, 3) for _ in range(3)] for mean in (100, 115))
        found += Noise(0.03).change(before, after) is Change.BETTER
    assert found >= 95
