"""``kvroom verify`` on the real engine: what it says of a server is what that server does."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvroom.server.address import Access
from kvroom.server.limits import Cause
from kvroom.server.metrics import parse_metrics
from kvroom.server.outcome import Failure
from kvroom.server.verify import Verification, Wishes, verify
from kvroom.server.workload import fixed
from tests.engine import environment, tiny
from tests.engine.bench import INPUT, OUTPUT, Bench, ours, paced
from tests.engine.serving import BLOCK, NAME, interpreter, served, whole_release

pytestmark = pytest.mark.engine
LENGTH = 512


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make(tmp_path_factory.mktemp("tiny"), interpreter())


@pytest.fixture(scope="module")
def small_pool(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Twelve blocks, of which one is never handed out."""
    words = ("--max-model-len", str(LENGTH), "--kv-cache-memory-bytes", "67108864", "--num-gpu-blocks-override", "12")
    with served(model, tmp_path_factory.mktemp("log") / "small.log", *words) as url:
        yield url


@pytest.fixture(scope="module")
def one_block_short(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """vLLM 0.28.0 with blocks for exactly max_model_len: it starts, and has one fewer than that needs."""
    words = ("--max-model-len", str(LENGTH), "--kv-cache-memory-bytes", str(LENGTH // BLOCK * 131072))
    log = tmp_path_factory.mktemp("log") / "short.log"
    with served(model, log, *words, "--max-num-seqs", "2", tree=whole_release("0.28.0")) as url:
        yield url


@pytest.fixture(scope="module")
def verified(small_pool: str) -> Verification:
    return verify(small_pool, Access(), Wishes(workload=fixed(INPUT, OUTPUT), max_seconds=400.0))


def held(found: Verification) -> dict[str, tuple[str, str]]:
    return {check.name: (str(check.held), check.seen) for check in found.checks}


def test_all_that_it_says_of_itself_is_found(verified: Verification) -> None:
    assert str(verified.release) == environment.NEWEST
    assert (verified.model, verified.max_model_len) == (NAME, LENGTH)
    assert verified.holds, held(verified)


def test_the_boundary_to_the_token(verified: Verification) -> None:
    assert verified.boundary is not None
    seen = {tried.total: tried.outcome for tried in verified.boundary.tried}

    for total in (LENGTH // 2, LENGTH - 1, LENGTH):
        assert seen[total].prompt_tokens + seen[total].output_tokens == total
    assert seen[LENGTH + 1].prompt_tokens + seen[LENGTH + 1].output_tokens == LENGTH  # cut down, not refused
    refused = seen[LENGTH + 2]
    assert (refused.failure, refused.status) == (Failure.REFUSED, 400)
    assert f"maximum context length is {LENGTH} tokens" in refused.message


def test_a_wrong_model_gets_the_404_of_this_release(verified: Verification) -> None:
    state, seen = held(verified)["wrong model"]

    assert state == "holds"
    assert seen == f"404: The model `kvroom-asks-for-no-such-model` does not exist. Valid aliases: {NAME}."


def test_the_usable_blocks_are_one_fewer_than_claimed(verified: Verification) -> None:
    pool = verified.pool

    assert pool is not None
    assert pool.claim is not None
    assert (pool.claim.num_blocks, pool.claim.most_tokens) == (12, 12 * BLOCK)
    assert (pool.usable_blocks, pool.usable_tokens, pool.exact) == (11, 11 * BLOCK, True)


def test_the_ramp_ends_with_real_preemptions(verified: Verification, small_pool: str) -> None:
    """Eleven blocks hold five requests of two blocks."""
    assert verified.ramp is not None
    *before, last = verified.ramp.steps

    assert verified.ramp.limit.cause is Cause.KV_POOL
    assert last.concurrency == 8
    assert (last.counted("preemptions") or 0) > 0
    assert not last.failures
    assert [step.counted("preemptions") for step in before] == [0] * len(before)
    with urllib.request.urlopen(f"{small_pool}/metrics", timeout=30) as answer:
        total = parse_metrics(answer.read().decode()).preemptions
    assert sum(step.counted("preemptions") or 0 for step in verified.ramp.steps) == total


def test_a_request_that_is_never_scheduled_is_told_within_30_seconds(one_block_short: str) -> None:
    found = verify(one_block_short, Access(), Wishes(ramp=False, max_seconds=200.0))

    assert found.boundary is not None
    assert found.boundary.stuck
    state, seen = held(found)["511 tokens"]
    assert state == "fails"
    assert "running 0, KV cache 0 %" in seen
    assert "still holds it" not in seen
    assert (found.pool.usable_tokens, found.pool.kept_back) == (3 * BLOCK, BLOCK) if found.pool else False
    with urllib.request.urlopen(f"{one_block_short}/metrics", timeout=30) as answer:
        after = parse_metrics(answer.read().decode())
    assert (after.running, after.waiting) == (0, 0)


def test_seats_are_told_from_blocks(one_block_short: str) -> None:
    load = Wishes(workload=fixed(40, 80), levels=(6,), requests=18, boundary=False, max_seconds=200.0)
    found = verify(one_block_short, Access(), load)

    assert found.ramp is not None
    assert found.ramp.limit.cause is Cause.SEATS
    assert found.ramp.steps[-1].running == 2
    assert found.ramp.limit.changes[0].flags == ("--max-num-seqs", "4")


def test_the_rate_is_that_of_vllms_own_client_where_the_pace_is_fixed(model: Path, tmp_path: Path) -> None:
    """A server that gives each of eight seats a token every 25 ms; how near the two are is measured in a benchmark."""
    with paced() as url:
        bench = Bench(url, model, tmp_path, 16, 8)
        bench.run()
        theirs = bench.result()
        found = ours(url, 16, 8)
        bench.end()

    assert (theirs["completed"], len(found.step.done)) == (16, 16)
    assert 0.7 < found.output_rate / theirs["output_throughput"] < 1.4


def test_as_many_tokens_as_vllms_own_client_on_the_engine(small_pool: str, model: Path, tmp_path: Path) -> None:
    """Two blocks a request, four of them: no queue."""
    bench = Bench(small_pool, model, tmp_path, 24, 2)
    bench.run()
    theirs = bench.result()
    found = ours(small_pool, 24, 2)
    bench.end()

    assert (found.step.output_tokens, theirs["total_output_tokens"]) == (24 * OUTPUT, 24 * OUTPUT)
