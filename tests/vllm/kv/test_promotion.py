from __future__ import annotations

import pytest
from tests.vllm.kv.makers import full, layers, rules, sliding

from kvroom.errors import EngineError
from kvroom.vllm.kv.grouping import grouped
from kvroom.vllm.kv.pages import Spec, SpecKind


@pytest.mark.parametrize("release", ["0.9.2", "0.16.0", "0.24.0", "0.32.0"])
def test_without_the_hybrid_manager_windows_are_stored_in_full(release: str) -> None:
    found = grouped(layers(sliding(), full(), sliding()), rules(release), hybrid=False)
    (group,) = found.groups
    assert len(group.layers) == 3
    assert {layer.spec.kind for layer in group.layers} == {SpecKind.FULL}
    assert found.warnings[0].startswith("Hybrid KV cache manager is disabled for this hybrid model")


def test_equal_layers_need_no_promotion() -> None:
    found = grouped(layers(sliding(), sliding()), rules("0.32.0"), hybrid=False)
    assert (found.groups[0].spec.kind, found.warnings) == (SpecKind.SLIDING, ())


@pytest.mark.parametrize(
    ("release", "text"),
    [
        ("0.16.0", "Hybrid KV cache manager is disabled but failed to convert the KV cache specs to one unified type."),
        ("0.32.0", "Failed to promote local KV cache specs to one unified type."),
    ],
)
def test_two_kinds_that_cannot_become_one_are_refused(release: str, text: str) -> None:
    states = Spec(SpecKind.MAMBA, 4096, 65536, fixed_blocks=1)
    with pytest.raises(EngineError) as refusal:
        grouped(layers(full(), states), rules(release), hybrid=False)
    assert refusal.value.problem == text


def test_a_promoted_layer_may_be_packed_otherwise() -> None:
    (group,) = grouped(layers(full(), sliding(unit=8000, promoted_unit=4096)), rules("0.27.1"), hybrid=False).groups
    assert [layer.spec.page_bytes for layer in group.layers] == [65536, 65536]


def test_deepseek_v4_cannot_do_without_the_manager_since_0_31() -> None:
    window = Spec(SpecKind.SLIDING_MLA, 64, 584, alignment=576, window=128)
    rows = layers(Spec(SpecKind.MLA, 256, 584, tokens_per_state=4, alignment=576), window)
    assert grouped(rows, rules("0.30.0"), hybrid=False).groups
    with pytest.raises(EngineError, match="bounded_replay"):
        grouped(rows, rules("0.31.0"), hybrid=False)
