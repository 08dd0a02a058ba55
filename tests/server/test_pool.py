from __future__ import annotations

import pytest

from kvroom.server.check import Held
from kvroom.server.client import Client
from kvroom.server.generate import Ask
from kvroom.server.lengths import prompts_for
from kvroom.server.meter import Meter
from kvroom.server.pool import Pool, measure_pool, pool_check
from tests.server.asking import asked
from tests.server.fake import Behaviour, FakeServer


def measured(behaviour: Behaviour) -> Pool:
    async def run(client: Client, meter: Meter) -> Pool:
        prompts = await prompts_for(client, "tiny")
        ask = Ask(model="tiny", prompt="", output=1)
        return await measure_pool(client, meter, ask, prompts, behaviour.max_model_len, 5.0)

    with FakeServer(behaviour) as server:
        return asked(server.url, run)


@pytest.mark.parametrize(("block", "blocks"), [(16, 129), (16, 40), (128, 12), (64, 1000), (1, 3000)])
def test_the_usable_blocks_are_all_but_the_null_block(block: int, blocks: int) -> None:
    pool = measured(Behaviour(block_size=block, num_blocks=blocks, step_s=0.01))

    assert (pool.usable_blocks, pool.usable_tokens, pool.kept_back) == (blocks - 1, (blocks - 1) * block, block)
    assert pool.exact
    check = pool_check(pool, 512)
    assert check.held is Held.HOLDS
    assert "null block" in check.why


def test_a_cache_smaller_than_one_request_is_told_although_nothing_hung() -> None:
    pool = measured(Behaviour(num_blocks=32, step_s=0.01))

    assert pool.usable_tokens == 496
    assert pool_check(pool, 512).held is Held.FAILS


def test_a_request_that_outgrows_the_cache_does_not_hold_the_measurement_up() -> None:
    pool = measured(Behaviour(num_blocks=20, step_s=0.01))

    assert pool.usable_tokens == 304


def test_without_metrics_it_is_unknown() -> None:
    pool = measured(Behaviour(metrics=False))

    assert pool.usable_tokens is None
    assert pool_check(pool, 512).held is Held.UNKNOWN
