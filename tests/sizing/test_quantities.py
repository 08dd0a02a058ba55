"""Needs as people write them."""

from __future__ import annotations

import pytest

from kvroom.errors import UsageError
from kvroom.sizing.quantities import counts, per_second, seconds, token_list, tokens


def test_lists_are_sorted_and_each_once() -> None:
    assert token_list("32k,8k,8192", "--context") == (8192, 32768)
    assert counts("16, 1,16", "--concurrency") == (1, 16)


@pytest.mark.parametrize("text", ["", "k", "-1", "0", "1.5", "32kb", "9" * 30, "1e5", "32 k k", "\u0663"])
def test_what_is_no_number_of_tokens(text: str) -> None:
    with pytest.raises(UsageError, match="--context"):
        tokens(text, "--context")


@pytest.mark.parametrize("text", ["50", "ms", "0ms", "-2s", "2 hours", "1e3s", ""])
def test_a_time_needs_its_unit(text: str) -> None:
    with pytest.raises(UsageError, match="--tpot"):
        seconds(text, "--tpot")


@pytest.mark.parametrize("text", ["5", "5/fortnight", "0/s", "/s", "5s"])
def test_a_rate_needs_its_unit(text: str) -> None:
    with pytest.raises(UsageError, match="--rate"):
        per_second(text, "--rate")


@pytest.mark.parametrize("text", ["0", "1,,2", "x", "1.5", "-4"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(UsageError, match="--concurrency"):
        counts(text, "--concurrency")
