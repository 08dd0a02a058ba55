"""How wide intervals are: by how far a launch is from what was measured."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.ledger.distance import FLOOR, Distance, calibrated, distance_of, unscaled
from kvroom.ledger.entries import Basis, Entry, close, exact
from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request

NAMES = ("requested", "weights", "activation", "other", "cuda_graphs")
KEPT = json.loads(files("kvroom.data.vllm").joinpath("spread.json").read_text("utf-8"))["entries"]


def distance(*words: str, gpu: str = "1x H100 80GB", release: str = "0.19.1", assumed: str | None = None) -> Distance:
    request = Request(gpu=gpu, vllm=release, offline=True, assume_quantization=assumed)
    found = plan_tokens(list(words), {}, request).prediction
    assert found.ledger is not None
    assert found.settings is not None
    setup = found.setup
    return distance_of(setup.shape, setup.args, found.settings, setup.machine.device, found.ledger.activation)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (distance("Qwen/Qwen3-8B"), Distance.TRACED),
        (distance("Qwen/Qwen3.6-27B", "--max-num-seqs", "8"), Distance.NEIGHBOUR),
        (distance("Qwen/Qwen3-8B", release="0.7.3"), Distance.ESTIMATED),
        (distance("Qwen/Qwen3-8B", gpu="1x GB10"), Distance.FAR),
        (distance("Qwen/Qwen3-8B", gpu="1x MI300X"), Distance.FAR),
        (distance("Qwen/Qwen3-8B", assumed="awq"), Distance.TRACED),
        (distance("Qwen/Qwen3-30B-A3B", assumed="awq"), Distance.FAR),
        (distance("Qwen/Qwen3-30B-A3B", "--enable-lora"), Distance.UNKNOWN),
        (distance("Qwen/Qwen3-8B", "--enable-lora"), Distance.TRACED),
        (distance("deepseek-ai/DeepSeek-V3.2", "-tp", "8", gpu="8x H200"), Distance.UNKNOWN),
    ],
)
def test_a_launch_is_as_far_as_its_farthest_part(found: Distance, expected: Distance) -> None:
    assert found is expected


SIZES = st.integers(0, 1 << 38)


@given(st.lists(st.tuples(SIZES, SIZES, SIZES).map(sorted), min_size=5, max_size=5), st.sampled_from(Distance))
def test_the_wider_interval_holds_the_narrower(sizes: list[list[int]], chosen: Distance) -> None:
    entries = [Entry(name, *each, Basis.ESTIMATED, "") for name, each in zip(NAMES, sizes, strict=True)]
    raw = close(*entries)
    found = calibrated(raw, chosen)
    for before, entry in zip(raw, found, strict=True):
        assert entry.expected == before.expected
        assert entry.low95 <= entry.low <= entry.expected <= entry.high <= entry.high95
    down, up = unscaled(found.available, chosen)
    assert down == pytest.approx(raw.available.spread_down + FLOOR, rel=1e-6, abs=100)
    assert up == pytest.approx(raw.available.spread_up + FLOOR, rel=1e-6, abs=100)


def test_what_is_exact_stays_exact_but_no_pool_is() -> None:
    parts = [exact(name, 1 << 30, Basis.COMPUTED, "") for name in NAMES]
    found = calibrated(close(*parts), Distance.TRACED)
    assert [entry.low95 == entry.high95 for entry in found] == [True] * 5 + [False]


def test_the_kept_factors_say_what_they_rest_on() -> None:
    assert set(KEPT) == {*NAMES[1:], "available"}
    for name, classes in KEPT.items():
        assert set(classes) == set(Distance), name
        for found in classes.values():
            assert 0 < found["factor80"] <= found["factor95"]
            assert found["runs"] >= 5
            assert found["of"]
    assert KEPT["available"]["far"]["factor95"] > KEPT["available"]["traced"]["factor95"]
