from __future__ import annotations

import asyncio

import pytest

from kvroom.server.client import Client
from kvroom.server.generate import Ask, Progress, generate, generate_whole
from kvroom.server.meter import Meter
from kvroom.server.outcome import Failed, Failure, Outcome
from tests.server.asking import asked
from tests.server.fake import Behaviour, FakeServer


def generated(behaviour: Behaviour, ask: Ask, seconds: float = 5.0) -> Outcome:
    async def one(client: Client, meter: Meter) -> Outcome:
        return await generate(client, ask, seconds, Progress())

    with FakeServer(behaviour) as server:
        return asked(server.url, one)


TEN = Ask(model="tiny", prompt=tuple(range(100, 120)), output=10)


@pytest.mark.parametrize(
    "ask", [TEN, Ask(model="tiny", prompt="one two three", output=10, chat=True)], ids=["ids", "chat"]
)
def test_the_times_of_a_stream(ask: Ask) -> None:
    outcome = generated(Behaviour(step_s=0.01), ask)

    assert outcome.ok
    assert (outcome.output_tokens, outcome.finish, len(outcome.itls)) == (10, "length", 9)
    assert outcome.ttft is not None
    assert outcome.latency is not None
    assert outcome.latency == pytest.approx(outcome.ttft + sum(outcome.itls))
    assert outcome.tpot == pytest.approx(sum(outcome.itls) / 9)
    assert sum(outcome.itls) > 7 * 0.01  # nine steps of the server


def test_one_token_has_no_time_per_output_token() -> None:
    assert Outcome(ttft=0.1, latency=0.1, output_tokens=1).tpot is None


@pytest.mark.parametrize(
    ("how", "failure"),
    [
        ("500", Failure.SERVER_ERROR),
        ("garbage", Failure.GARBAGE),
        ("binary event", Failure.GARBAGE),
        ("no tokens", Failure.GARBAGE),
        ("error event", Failure.SERVER_ERROR),
        ("cut", Failure.DROPPED),
        ("silent", Failure.TIMEOUT),
    ],
)
def test_what_is_no_answer_is_a_failure_of_its_kind(how: str, failure: Failure) -> None:
    outcome = generated(Behaviour(generation=how), TEN, 0.5)

    assert outcome.failure is failure
    assert outcome.message


def test_an_answer_without_end_is_a_timeout() -> None:
    outcome = generated(Behaviour(step_s=0.2), TEN, 0.7)

    assert outcome.failure is Failure.TIMEOUT
    assert "no end of the answer" in outcome.message


def test_nothing_is_sent_beyond_the_budget() -> None:
    async def three(client: Client, meter: Meter) -> list[Outcome]:
        return [await generate(client, TEN, 5.0, Progress()) for _ in range(3)]

    with FakeServer() as server:
        outcomes = asked(server.url, three, requests=2)
        sent = [path for _, path, _, _ in server.seen]

    assert [outcome.failure for outcome in outcomes] == [None, None, Failure.BUDGET]
    assert len(sent) == 2


def test_a_request_is_cut_off_when_the_time_allowed_is_over() -> None:
    async def one(client: Client, meter: Meter) -> Outcome:
        return await generate(client, TEN, 30.0, Progress())

    with FakeServer(Behaviour(step_s=0.2)) as server:
        outcome = asked(server.url, one, seconds=0.5)

    assert outcome.failure is Failure.BUDGET


def test_an_answer_is_read_to_a_limit() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 1_000_000)
                await writer.drain()
        except ConnectionError:
            writer.close()

    async def run() -> Failed:
        from kvroom.server.client import Budget
        from tests.server.asking import ANYBODY

        server = await asyncio.start_server(endless, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, Client(f"http://127.0.0.1:{port}", ANYBODY, Budget(1, 10)) as client:
            with pytest.raises(Failed) as failed:
                await client.ask("GET", "/v1/models")
        return failed.value

    assert asyncio.run(run()).kind is Failure.GARBAGE


def test_a_whole_answer_that_is_none_is_garbage() -> None:
    async def one(client: Client, meter: Meter) -> Outcome:
        return await generate_whole(client, TEN, 5.0)

    with FakeServer(Behaviour(everything="html")) as server:
        assert asked(server.url, one).failure is Failure.GARBAGE
