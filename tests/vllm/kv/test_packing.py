from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vllm.kv.makers import layers, rules

from kvroom.errors import EngineError
from kvroom.vllm.kv.groups import Layer
from kvroom.vllm.kv.packing import compressed_block_bytes, compressed_groups, packed_groups
from kvroom.vllm.kv.pages import Spec, SpecKind

STATES = {
    ratio: Spec(SpecKind.MLA, 256, 584, tokens_per_state=ratio, alignment=576, identity=(ratio,)) for ratio in (4, 128)
}
WINDOW = Spec(SpecKind.SLIDING_MLA, 64, 584, alignment=576, window=128)
TAIL = {
    4: Spec(SpecKind.SLIDING_MLA, 4, 8192, alignment=576, window=8),
    128: Spec(SpecKind.SLIDING_MLA, 8, 4096, alignment=576, window=128),
}


def model(ratios: list[int]) -> tuple[Layer, ...]:
    return layers(*(spec for ratio in ratios for spec in (WINDOW, STATES[ratio], TAIL[ratio])))


@given(st.lists(st.sampled_from([4, 128]), min_size=2, max_size=30), st.sampled_from(["0.20.2", "0.24.0", "0.28.0"]))
def test_compressed_layers_are_placed_once_after_the_full_ones(ratios: list[int], release: str) -> None:
    mine = model([4, *ratios])
    groups = compressed_groups(mine, rules(release))
    assert sorted(layer.index for group in groups for layer in group.layers) == [layer.index for layer in mine]
    assert {layer.spec.kind for layer in groups[0].layers} == {SpecKind.MLA}
    if release != "0.28.0":
        assert compressed_block_bytes(groups, rules(release)) >= max(group.block_bytes for group in groups)


@given(st.lists(st.sampled_from([4, 128]), min_size=2, max_size=30))
def test_packed_groups_place_every_layer_once(ratios: list[int]) -> None:
    mine = model(ratios)
    groups = packed_groups(mine, rules("0.32.0"))
    assert sorted(layer.index for group in groups for layer in group.layers) == [layer.index for layer in mine]


def test_a_window_wider_than_every_full_page_is_refused() -> None:
    narrow = Spec(SpecKind.MLA, 64, 584, tokens_per_state=4, alignment=576)
    with pytest.raises(EngineError, match="AssertionError"):
        compressed_groups(layers(narrow, WINDOW), rules("0.24.0"))
