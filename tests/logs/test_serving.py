"""The line of statistics in the forms of all releases, and what a log's lines amount to together."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.logs import serving
from kvroom.logs.serving import FULL, IDLE, Load, Moment, read_moment

RATES = "Avg prompt throughput: 12.5 tokens/s, Avg generation throughput: 340.0 tokens/s, "
FORMS = {
    "V0": (
        "INFO 07-24 09:55:30 metrics.py:334] "
        + RATES
        + "Running: 7 reqs, Swapped: 2 reqs, Pending: 3 reqs, GPU KV cache usage: 41.5%, CPU KV cache usage: 3.0%.",
        {"waiting": 5},
    ),
    "0.7.1": (RATES + "Running: 7 reqs, Waiting: 5 reqs GPU KV cache usage: 41.5%.", {}),
    "0.8": (
        "Engine 000: "
        + RATES
        + "Running: 7 reqs, Waiting: 5 reqs, GPU KV cache usage: 41.5%, Prefix cache hit rate: 8.5%",
        {"prefix_percent": 8.5},
    ),
    "preemptions": (
        RATES + "Running: 7 reqs, Waiting: 5 reqs, Preemptions: 4, GPU KV cache usage: 41.5%, Corrupted: 0 reqs",
        {"preemptions": 4},
    ),
    "aggregated": (
        "4 Engines Aggregated: " + RATES + "Running: 7 reqs, Waiting: 5 reqs, CPU KV cache usage: 41.5%",
        {},
    ),
    "every part": (
        RATES + "Running: 7 reqs, Waiting: 5 reqs, Deferred: 3 reqs, KV fetch: 1 waiting to start, 2 in progress, "
        "0 completed waiting, Preemptions: 4, XPU KV cache usage: 41.5%, Prefix cache hit rate: 8.5%, "
        "External prefix cache hit rate: 1.0%, MM cache hit rate: 2.0%",
        {"deferred": 3, "preemptions": 4, "prefix_percent": 8.5},
    ),
    "fetch alone": (
        RATES + "Running: 7 reqs, Waiting: 5 reqs, KV fetch: 1 waiting to start, 2 in progress, 0 completed waiting, "
        "GPU KV cache usage: 41.5%",
        {},
    ),
    "an unknown part": (
        RATES + "Running: 7 reqs, Waiting: 5 reqs, Parked: 9 reqs, Preemptions: 4, GPU KV cache usage: 41.5%, "
        "Prefix cache hit rate: 8.5%",
        {"preemptions": 4, "prefix_percent": 8.5},
    ),
}
SHORT = "Running: 2 reqs, Swapped: 0 reqs, Pending: 98 reqs, GPU KV cache usage: 86.1%"


def line_of(
    running: int, waiting: int, kv: float, *, made: float = 1.0, preempted: int = 0, deferred: int = 0, engine: int = 0
) -> bytes:
    parts = [f"Running: {running} reqs", f"Waiting: {waiting} reqs"]
    parts += [f"Deferred: {deferred} reqs"] * (deferred > 0) + [f"Preemptions: {preempted}"] * (preempted > 0)
    rates = f"Avg prompt throughput: {made:.1f} tokens/s, Avg generation throughput: {made:.1f} tokens/s, "
    return f"Engine {engine:03d}: {rates}{', '.join(parts)}, GPU KV cache usage: {kv:.1f}%".encode()


def folded(lines: Iterable[bytes]) -> Load:
    load = Load()
    for number, raw in enumerate(lines, 1):
        load.add(number, raw)
    return load


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read(form: str) -> None:
    text, special = FORMS[form]
    usual = {"waiting": 5, "preemptions": 0, "prefix_percent": None, "deferred": 0}
    expected = Moment(line=3, prompt_tps=12.5, generation_tps=340.0, running=7, kv_percent=41.5, **(usual | special))
    assert read_moment(3, text.encode()) == expected
    assert folded([text.encode()]).preemptions == expected.preemptions


def test_the_short_form_of_a_paste() -> None:
    assert read_moment(1, SHORT.encode()) == Moment(1, 0.0, 0.0, 2, 98, 86.1, 0, None)
    load = folded([SHORT.encode()] * 3)
    assert (load.count, load.most_waiting, load.stuck) == (3, 98, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Running: ",
        RATES,
        "Running: 1 reqs, Waiting: x reqs",
        RATES.replace("12.5", "1.2.3") + "Running: 7 reqs, Waiting: 5 reqs",
        RATES.replace("12.5", "") + "Running: 7 reqs, Waiting: 5 reqs",
        RATES + "Running: 7 reqs, Waiting: 5 reqs, GPU KV cache usage: 4.1.5%",
        RATES + f"Running: {'9' * 40} reqs, Waiting: 5 reqs",
    ],
)
def test_what_is_no_line_of_statistics_is_left_out(text: str) -> None:
    assert read_moment(1, text.encode()) is None
    assert folded([text.encode()]) == Load()


def test_statistics_without_a_usage() -> None:
    load = folded([(RATES + "Running: 7 reqs, Waiting: 5 reqs").encode()])
    assert load.count == 1
    assert load.busiest is None
    assert not load.full_and_waiting


def test_a_full_cache_counts_only_while_requests_wait_for_room() -> None:
    load = folded([line_of(4, 0, 99.0), line_of(4, 3, 99.0), line_of(4, 3, 80.0), line_of(4, 3, 99.0, deferred=3)])
    assert load.full_and_waiting == 1
    assert load.evidence["full_and_waiting"].line == 2
    assert load.busiest is not None
    assert load.busiest.line == 1


def test_the_number_that_run_while_there_is_room() -> None:
    load = folded([line_of(n, 9, 10.0) for n in (3, 8, 8, 5, 8)])
    assert (load.idle_and_waiting, load.idle_running, load.idle_at_most) == (5, 8, 3)


def test_stuck_is_the_row_that_lasts_to_the_end() -> None:
    waits, runs = line_of(0, 2, 0.0, made=0.0), line_of(1, 0, 5.0)
    assert folded([runs, waits, waits]).stuck == 2
    assert folded([waits, waits, runs]).stuck == 0
    since = folded([waits, runs, waits, waits, waits]).stuck_since
    assert since is not None
    assert since.line == 3


def test_stuck_needs_no_tokens_and_no_other_reason() -> None:
    assert not folded([line_of(0, 2, 0.0, made=4.0)] * 3).stuck
    assert not folded([line_of(0, 2, 0.0, made=0.0, deferred=2)] * 3).stuck


def test_engines_are_kept_apart() -> None:
    waits, runs = line_of(0, 2, 0.0, made=0.0, engine=1), line_of(5, 0, 20.0, engine=0)
    assert folded([runs, waits] * 4).stuck == 4
    assert folded([*[runs, waits] * 4, line_of(1, 0, 2.0, engine=1)]).stuck == 0


moments = st.builds(
    line_of,
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from([0.0, 10.0, 50.0, 94.9, 95.0, 100.0]),
    made=st.sampled_from([0.0, 2.5]),
    preempted=st.integers(0, 2),
    deferred=st.integers(0, 2),
    engine=st.integers(0, 2),
)


@given(st.lists(moments, max_size=12))
def test_the_fold_says_what_the_lines_say(lines: list[bytes]) -> None:
    load, read = folded(lines), [read_moment(number, raw) for number, raw in enumerate(lines, 1)]
    seen = [moment for moment in read if moment is not None]
    held_up = [moment for moment in seen if moment.running and moment.waiting > moment.deferred]
    assert len(seen) == len(lines) == load.count
    assert load.first == (seen[0] if seen else None)
    assert load.last == (seen[-1] if seen else None)
    assert load.most_running == max((moment.running for moment in seen), default=0)
    assert load.most_waiting == max((moment.waiting for moment in seen), default=0)
    assert load.preemptions == sum(moment.preemptions for moment in seen)
    assert load.full_and_waiting == sum((moment.kv_percent or 0) >= FULL for moment in held_up)
    assert load.idle_and_waiting == sum((moment.kv_percent or 0) < IDLE for moment in held_up)
    assert load.busiest == max(seen, key=lambda moment: moment.kv_percent or 0, default=None)


def test_a_line_costs_one_match_and_rarely_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"match": 0, "moment": 0}
    match, moment = serving._match, serving.read_moment

    def counted_match(raw: bytes, at: int) -> object:
        calls["match"] += 1
        return match(raw, at)

    def counted_moment(line: int, raw: bytes) -> Moment | None:
        calls["moment"] += 1
        return moment(line, raw)

    monkeypatch.setattr(serving, "_match", counted_match)
    monkeypatch.setattr(serving, "read_moment", counted_moment)
    lines = [line_of(n % 5, n % 3, 60.0 + n % 40, preempted=n % 2, engine=n % 2) for n in range(5000)]
    folded(lines)
    assert calls["moment"] < 60
    assert calls["match"] == len(lines) + calls["moment"]
