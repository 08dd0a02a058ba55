from __future__ import annotations

import math
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import KvroomError, UsageError
from kvroom.trials.figures import Figures, Peak, Sample
from kvroom.trials.goal import Goal, ladder, parse_goal, parse_limit, violation


def figures(**changed: object) -> Figures:
    kept = {"kv_tokens": 65536, "max_model_len": 8192, "peak": Peak(90, 100), "start_seconds": 1.0}
    sample = Sample(0.5, 0.02, 100.0)
    return Figures(**{**kept, "samples": (sample,), **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("context=32k", Goal("context", 32768)),
        ("context=32K", Goal("context", 32768)),
        ("context=10000", Goal("context", 10000)),
        ("concurrency=16@8k", Goal("concurrency", 8192, 16)),
        (" throughput ", Goal("throughput")),
    ],
)
def test_a_goal_is_read(text: str, goal: Goal) -> None:
    assert parse_goal(text) == goal
    assert parse_goal(str(goal)) == goal


@pytest.mark.parametrize(
    "text",
    ["", "context", "context=", "context=0", "context=-1", "context=8k@2", "concurrency=16", "concurrency=0@8k",
     "concurrency=x@8k", "concurrency=\u0661@8k", "throughput=5", "speed", "context=8kk"],
)  # fmt: skip
def test_what_is_no_goal_is_said_so(text: str) -> None:
    with pytest.raises(UsageError, match="--goal"):
        parse_goal(text)


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("ttft<2s", 2.0, "ttft<2s"),
        ("tpot<50ms", 0.05, "tpot<50ms"),
        ("peak<95%", 0.95, "peak<95.0%"),
        ("peak<20GiB", 20 * 2**30, "peak<20.00GiB"),
        ("throughput>=100", 100.0, "throughput>100"),
    ],
)
def test_a_limit_is_read(text: str, value: float, shown: str) -> None:
    limit = parse_limit(text)

    assert limit.value == pytest.approx(value)
    assert str(limit) == shown


@pytest.mark.parametrize(
    "text", ["ttft>2s", "ttft<2", "peak<101%", "peak<0%", "throughput<5", "speed<3s", "ttft", "ttft<0s", "peak<x"]
)
def test_what_is_no_limit_is_said_so(text: str) -> None:
    with pytest.raises(UsageError, match="--limit"):
        parse_limit(text)


@given(st.text(max_size=40))
def test_any_text_is_a_goal_or_an_error_of_ours(text: str) -> None:
    for parse in (parse_goal, parse_limit):
        with suppress(KvroomError):
            parse(text)


def test_progress_is_one_where_the_goal_is_met_and_less_before() -> None:
    assert parse_goal("context=8k").progress(figures(), 8) == 1
    assert parse_goal("context=16k").progress(figures(), 8) == 0.5
    assert parse_goal("concurrency=8@8k").progress(figures(), 8) == 1
    assert parse_goal("concurrency=16@8k").progress(figures(), 16) == 0.5  # the pool holds half
    assert parse_goal("concurrency=8@8k").progress(figures(), 4) == 0.5  # half may run
    assert parse_goal("throughput").progress(figures(), None) == 1


def test_the_worst_broken_limit_counts_and_a_figure_that_is_missing_breaks_its_own() -> None:
    limits = [parse_limit("ttft<400ms"), parse_limit("peak<60%"), parse_limit("throughput>50")]

    assert violation(limits, figures()) == pytest.approx(0.5)
    assert violation([parse_limit("ttft<1s")], figures()) == 0
    assert violation([parse_limit("peak<60%")], figures(peak=None)) == math.inf


@given(st.integers(1, 1 << 20))
def test_a_ladder_rises_to_its_end(length: int) -> None:
    steps = ladder(length)

    assert steps[-1] == length
    assert list(steps) == sorted(set(steps))
    assert all(later <= 2 * earlier for earlier, later in pairwise(steps))
