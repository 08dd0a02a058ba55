"""One pass over a log of any size, in memory that does not grow with it."""

from __future__ import annotations

import io

import pytest

from kvroom.logs.read import read_log
from kvroom.logs.scan import KEPT_STARTS, scan
from kvroom.logs.source import pieces

BANNER = "INFO 09-29 00:28:54 [api_server.py:1896] vLLM API server version 0.10.{}\n"
ROOM = "(EngineCore_DP0 pid=1) INFO 09-29 00:29:54 [gpu_worker.py:298] Available KV cache memory: {}.50 GiB\n"
ACCESS = 'INFO:     127.0.0.1:5000 - "POST /v1/completions HTTP/1.1" 200 OK\n'
REFUSED = 'INFO:     127.0.0.1:5000 - "POST /v1/completions HTTP/1.1" 400 Bad Request\n'


def test_line_numbers_are_those_of_the_file() -> None:
    text = "\n" * 9 + BANNER.format(2) + ACCESS * 1000 + ROOM.format(3) + ACCESS

    log = read_log(io.BytesIO(text.encode()))

    assert log.lines == 1012
    assert [(fact.id, fact.line) for fact in log.readings[0].facts] == [("banner", 10), ("available", 1011)]


def test_each_start_is_a_reading_of_its_own_and_the_last_comes_first() -> None:
    text = "".join(BANNER.format(n) + ROOM.format(n) for n in range(3))

    log = read_log(io.BytesIO(text.encode()))

    assert log.starts == 3
    assert [reading.version for reading in log.readings] == ["0.10.2", "0.10.1", "0.10.0"]
    assert [reading.measured["available"].printed for reading in log.readings] == ["2.50", "1.50", "0.50"]


def test_of_very_many_starts_the_last_are_kept() -> None:
    text = (BANNER.format(0) + ROOM.format(1)) * 1000 + BANNER.format(2) + ROOM.format(7)

    log = read_log(io.BytesIO(text.encode()))

    assert log.starts == 1001
    assert len(log.readings) == KEPT_STARTS
    assert log.readings[0].measured["available"].printed == "7.50"


def test_what_is_kept_of_one_start_is_bounded() -> None:
    found = scan(pieces(io.BytesIO((BANNER.format(0) + ROOM.format(1) * 60_000).encode())))

    assert found.count == 1
    assert len(found.starts[-1].candidates()) < 10_000


def test_refused_requests_are_counted_not_kept() -> None:
    found = scan(pieces(io.BytesIO((BANNER.format(0) + REFUSED * 500 + ACCESS * 500).encode())))

    assert found.starts[-1].statuses == {400: 500}
    assert len(found.starts[-1].candidates()) == 1


def test_progress_bars_that_overwrite_themselves() -> None:
    bar = "\r".join(
        f"Loading safetensors checkpoint shards:  {n * 25}% Completed | {n}/4 [00:0{n}<?]" for n in range(5)
    )

    log = read_log(io.BytesIO((BANNER.format(0) + bar + "\n" + ROOM.format(1)).encode()))

    assert [fact.values["done"] for fact in log.readings[0].facts.all("shards")] == ["0", "1", "2", "3", "4"]
    assert {fact.line for fact in log.readings[0].facts.all("shards")} == {2}


def test_what_is_kept_of_long_lines_is_bounded_in_bytes() -> None:
    line = b"x " * 20_000 + ROOM.format(1).strip().encode() + b" y" * 20_000 + b"\n"

    found = scan(pieces(io.BytesIO(BANNER.format(0).encode() + line * 200)))
    kept = found.starts[-1].candidates()

    assert sum(len(each.raw) for each in kept) < 4_000_000
    assert [each.number for each in kept] == sorted(each.number for each in kept)
    assert kept[0].number == 1
    assert kept[-1].number == 201


def test_less_is_kept_of_a_start_that_another_one_follows() -> None:
    start = BANNER.format(0) + ROOM.format(1) * 9000

    found = scan(pieces(io.BytesIO((start * 2).encode())))
    first, last = (sum(len(each.raw) for each in each_start.candidates()) for each_start in found.starts)

    assert first < last / 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_ends_as_any_system_ends_it(end: str) -> None:
    text = end.join([BANNER.format(2).strip(), "nothing", ROOM.format(3).strip(), ROOM.format(4).strip(), ""])

    facts = read_log(io.BytesIO(text.encode())).readings[0].facts

    assert [fact.values.get("gib") for fact in facts] == [None, "3.50", "4.50"]


def test_the_first_of_very_many_errors_is_told() -> None:
    lines = ["ValueError: early", *["ValueError: again"] * 5000]

    reading = read_log(io.BytesIO("\n".join(lines).encode())).readings[0]

    assert reading.error is not None
    assert reading.error.line == 1


def test_the_beginning_of_a_message_a_thousand_times_in_a_line() -> None:
    line = "INFO [utils.py:233] " + "non-default args: {" * 5000 + "'model': 'm'}\n"

    assert read_log(io.BytesIO(line.encode())).readings
