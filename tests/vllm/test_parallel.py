from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import UsageError
from kvroom.vllm.parallel import kv_heads_per_rank, stage_layers


@given(st.integers(1, 200), st.integers(1, 16), st.sampled_from(["before_last", "last"]))
def test_stages_hold_every_layer_once(layers: int, stages: int, remainder: str) -> None:
    ranges = stage_layers(layers, stages, None, remainder)
    assert [layer for stage in ranges for layer in stage] == list(range(layers))
    if remainder == "before_last":
        assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
        assert len(ranges[-1]) == min(map(len, ranges))


@pytest.mark.parametrize(("layers", "stages", "sizes"), [(61, 4, [15, 15, 16, 15]), (46, 4, [11, 12, 12, 11])])
def test_the_last_stage_is_spared(layers: int, stages: int, sizes: list[int]) -> None:
    assert list(map(len, stage_layers(layers, stages))) == sizes


def test_old_releases_burdened_it() -> None:
    assert list(map(len, stage_layers(46, 4, None, "last"))) == [11, 11, 11, 13]


def test_a_partition_is_taken_as_given() -> None:
    assert stage_layers(10, 3, "5,3,2") == (range(5), range(5, 8), range(8, 10))


@pytest.mark.parametrize("partition", ["5,5", "1,2,3", "a,b,c", "12,-1,-1"])
def test_a_partition_that_does_not_fit(partition: str) -> None:
    with pytest.raises(UsageError, match="VLLM_PP_LAYER_PARTITION"):
        stage_layers(10, 3, partition)


@given(st.integers(1, 128), st.sampled_from([1, 2, 4, 8, 16]))
def test_heads_are_replicated_rather_than_lost(heads: int, tp: int) -> None:
    mine = kv_heads_per_rank(heads, tp)
    assert mine == (heads // tp if heads >= tp else 1)
