from __future__ import annotations

import time

import pytest

from kvroom.server.boundary import Boundary, boundary
from kvroom.server.check import Held
from kvroom.server.client import Client
from kvroom.server.generate import Ask
from kvroom.server.lengths import chat_text, prompts_for
from kvroom.server.meter import Meter
from kvroom.server.outcome import Failure
from tests.server.asking import asked
from tests.server.fake import Behaviour, FakeServer


def tried(behaviour: Behaviour, **bounds: float) -> Boundary:
    async def run(client: Client, meter: Meter) -> Boundary:
        prompts = await prompts_for(client, "tiny")
        ask = Ask(model="tiny", prompt="", output=1)
        return await boundary(client, meter, ask, prompts, behaviour.max_model_len or 0, 5.0, lambda _: None)

    with FakeServer(behaviour) as server:
        return asked(server.url, run, **bounds)


@pytest.mark.parametrize("length", [2, 3, 16, 17, 512])
def test_every_length_is_tried_to_the_token(length: int) -> None:
    found = tried(Behaviour(max_model_len=length))

    assert {check.held for check in found.checks} == {Held.HOLDS}
    totals = [each.total for each in found.tried]
    within = {max(part, 2) for part in (length // 2, length - 1, length)}
    assert totals == [*sorted(within), length + 1, length + 2]
    assert all(each.outcome.prompt_tokens == each.prompt for each in found.tried if each.outcome.ok)


def test_a_release_that_cuts_max_tokens_down_is_explained() -> None:
    found = tried(Behaviour(clips=True))

    (check,) = [check for check in found.checks if check.name == "513 tokens"]
    assert check.seen == "answered with 7 tokens instead of 8"
    assert "finish_reason" in check.why


def test_a_release_that_refuses_is_as_good() -> None:
    found = tried(Behaviour(clips=False, version="0.28.0"))

    (check,) = [check for check in found.checks if check.name == "513 tokens"]
    assert check.held is Held.HOLDS
    assert check.seen.startswith("400: This model's maximum context length is 512 tokens.")


def test_a_request_that_can_never_be_scheduled_is_seen_and_cancelled() -> None:
    behaviour = Behaviour(num_blocks=32)  # 512 tokens claimed, 496 usable
    began = time.monotonic()
    found = tried(behaviour)

    assert found.stuck
    assert found.tried[-1].outcome.failure is Failure.STUCK
    assert "waiting 1, running 0, KV cache 0 %" in found.checks[-1].seen
    assert "still holds it" not in found.checks[-1].seen
    assert time.monotonic() - began < 30


def test_one_block_more_and_nothing_hangs() -> None:
    assert not tried(Behaviour(num_blocks=34)).stuck


def test_a_slow_server_is_not_taken_for_stuck() -> None:
    found = tried(Behaviour(step_s=0.12, max_model_len=24), stuck_s=0.3)

    assert {check.held for check in found.checks} == {Held.HOLDS}


def test_a_message_of_chat_is_made_to_the_token() -> None:
    async def run(client: Client, meter: Meter) -> tuple[str, int | None]:
        return await chat_text(client, "tiny", await prompts_for(client, "tiny"), 50)

    with FakeServer() as server:
        text, tokens = asked(server.url, run)
    assert tokens == 50
    assert len(text.split()) == 48  # the template adds two

    with FakeServer(Behaviour(tokenize=False)) as server:
        assert asked(server.url, run)[1] is None
