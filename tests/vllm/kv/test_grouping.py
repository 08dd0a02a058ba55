from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vllm.kv.makers import RELEASES, full, layers, rules, sliding

from kvroom.errors import EngineError
from kvroom.vllm.kv.grouping import grouped
from kvroom.vllm.kv.groups import on_stage
from kvroom.vllm.kv.pages import Spec


def sizes(release: str, *specs: Spec, hybrid: bool = True, packed: bool = False) -> list[int]:
    found = grouped(layers(*specs), rules(release), hybrid=hybrid, packed=packed)
    return [len(group.layers) for group in found.groups]


@pytest.mark.parametrize("release", RELEASES)
def test_equal_layers_are_one_group(release: str) -> None:
    assert sizes(release, *[full()] * 7) == [7]


def test_layers_are_dealt_to_groups_of_equal_size() -> None:
    found = grouped(layers(*[sliding(), sliding(), full()] * 2, sliding()), rules("0.16.0"), hybrid=True)
    assert [[layer.index for layer in group.layers] for group in found.groups] == [[0, 4], [1, 6], [3], [2, 5]]
    assert found.warnings == ("Add 1 padding layers, may waste at most 20.00% KV cache memory",)


def test_old_releases_cut_runs_and_put_full_attention_first() -> None:
    found = grouped(layers(*[sliding(), sliding(), full()] * 2, sliding()), rules("0.9.2"), hybrid=True)
    assert [[layer.index for layer in group.layers] for group in found.groups] == [[2, 5], [0, 1], [3, 4], [6]]


@pytest.mark.parametrize(("release", "expected"), [("0.10.2", [4, 4, 1]), ("0.32.0", [5, 4])])
def test_a_few_more_windowed_layers_stretch_the_group(release: str, expected: list[int]) -> None:
    assert sorted(sizes(release, *[sliding()] * 5, *[full()] * 4), reverse=True) == expected


def test_pages_are_made_equal_by_longer_blocks() -> None:
    found = grouped(layers(full(unit=4096), sliding(unit=2048)), rules("0.32.0"), hybrid=True)
    assert [group.spec.block_size for group in found.groups] == [16, 32]
    assert {group.spec.page_bytes for group in found.groups} == {65536}


def test_pages_that_do_not_divide() -> None:
    specs = layers(full(unit=4096), sliding(unit=3000))
    with pytest.raises(EngineError):
        grouped(specs, rules("0.11.2"), hybrid=True)
    padded = grouped(specs, rules("0.32.0"), hybrid=True)
    assert [group.spec.page_bytes for group in padded.groups] == [65536, 65536]


def test_a_model_without_caches_has_no_groups() -> None:
    assert grouped((), rules("0.32.0"), hybrid=True).groups == ()


def test_the_first_releases_keep_one_group() -> None:
    assert sizes("0.8.5", full(), sliding(), full()) == [3]


def test_a_stage_keeps_its_layers_of_every_group() -> None:
    wide = full(unit=8192, identity=(16, 128))
    found = grouped(layers(*[full(), wide] * 2), rules("0.32.0"), hybrid=True)
    (whole,) = found.groups
    assert whole.uniform
    assert whole.page_bytes == 2 * (65536 + 131072)
    (projected,) = on_stage(found.groups, {0, 1}, rules("0.32.0"))
    assert (len(projected.layers), projected.page_bytes) == (2, 65536 + 131072)
    (counted_whole,) = on_stage(found.groups, {0, 1}, rules("0.16.0"))
    assert (len(counted_whole.layers), counted_whole.page_bytes) == (2, whole.page_bytes)


SPECS = st.sampled_from([full(), full(unit=8192, identity=(16, 128)), sliding(), sliding(512), sliding(unit=8192)])


@given(st.lists(SPECS, min_size=1, max_size=40), st.sampled_from(RELEASES), st.booleans(), st.booleans())
def test_every_layer_is_in_exactly_one_group(specs: list[Spec], release: str, hybrid: bool, packed: bool) -> None:
    mine = layers(*specs)
    try:
        found = grouped(mine, rules(release), hybrid=hybrid, packed=packed)
    except EngineError:
        return
    placed = [layer.index for group in found.groups for layer in group.layers]
    assert sorted(placed) == list(range(len(specs)))
    assert all(group.block_bytes > 0 for group in found.groups)
    if not packed:
        assert len({group.spec.page_bytes for group in found.groups if not group.uniform}) <= 1
