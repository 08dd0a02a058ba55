from __future__ import annotations

from dataclasses import replace

import pytest
from tests.vllm.kv.makers import full, sliding

from kvroom.vllm.kv.pages import Spec, SpecKind, WindowMismatch, merged, same_type, state_bytes


def test_a_page_is_a_block_of_tokens_padded_or_rounded_up() -> None:
    assert full(16, 4096).page_bytes == 65536
    assert full(16, 4096, page_padded=70000).page_bytes == 70000
    assert Spec(SpecKind.MLA, 256, 584, tokens_per_state=4, alignment=576).page_bytes == 37440
    assert Spec(SpecKind.MLA, 256, 584, tokens_per_state=128, alignment=576).page_bytes == 1728
    assert Spec(SpecKind.MAMBA, 8192, 1_234_567).page_bytes == 1_234_567


def test_states_add_up() -> None:
    assert state_bytes([(3, 10), (4, 5)], ["bfloat16", "float32"]) == 2 * 30 + 4 * 20


def test_promoted_layers_merge_with_full_ones() -> None:
    promoted = full(window=1024, promoted="sliding")
    assert merged([full(), promoted]) == full()
    assert merged([full(), full(32)]) is None
    assert merged([full(), full(identity=(1,))]) is None
    assert merged([full(), sliding()]) is None


def test_layers_of_two_windows_stop_the_launch() -> None:
    one, other = (full(window=window, promoted="sliding") for window in (512, 1024))
    with pytest.raises(WindowMismatch, match="must have the same window size"):
        merged([full(), one, other])


def test_windowed_layers_merge_only_when_equal() -> None:
    assert merged([sliding(), sliding()]) == sliding()
    assert merged([sliding(512), sliding(1024)]) is None


def test_old_releases_compare_pages_only() -> None:
    specs = [full(identity=(8, 128)), full(identity=(16, 64))]
    assert merged(specs) is None
    assert merged(specs, by_page=True) == specs[0]


def test_same_type_asks_for_equal_token_slots() -> None:
    mamba = Spec(SpecKind.MAMBA, 4096, 1000, fixed_blocks=1)
    assert same_type([full(), full(unit=8192)], mamba_by_page=True)
    assert not same_type([full(), full(32)], mamba_by_page=True)
    assert not same_type([full(), sliding()], mamba_by_page=True)
    assert not same_type([sliding(512), sliding(1024)], mamba_by_page=True)
    larger = replace(mamba, unit_bytes=2000)
    assert same_type([mamba, larger], mamba_by_page=False)
    assert not same_type([mamba, larger], mamba_by_page=True)
