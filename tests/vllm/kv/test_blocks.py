from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vllm.kv.makers import rules

from kvroom.errors import EngineError
from kvroom.vllm.kv.blocks import (
    KernelSizes,
    align_dtypes,
    align_hybrid,
    kernel_sizes,
    no_common_block,
    primary_block,
    window_block,
)

FLASH = KernelSizes((), 16)
LISTED = KernelSizes((16, 32, 64))


@given(st.integers(1, 4096), st.sampled_from([FLASH, LISTED, KernelSizes((128,))]))
def test_the_largest_block_within(tokens: int, sizes: KernelSizes) -> None:
    block = sizes.largest_within(tokens)
    assert sizes.splits(block)
    assert block <= tokens or block == sizes.smallest


def test_which_blocks_split() -> None:
    assert FLASH.splits(544)
    assert not FLASH.splits(8)
    assert LISTED.splits(96)
    assert str(LISTED) == "[16, 32, 64]"
    assert str(FLASH) == "[MultipleOf(16)]"


def test_the_block_without_a_wish_is_the_backends() -> None:
    new, old = rules("0.32.0"), rules("0.16.0")
    assert primary_block(None, None, "FLASH_ATTN", kernel_sizes("FLASH_ATTN", None, new), new) == 16
    assert primary_block(None, 64, "FLASHMLA", kernel_sizes("FLASHMLA", 64, new), new) == 64
    assert primary_block(32, 64, "FLASHMLA", kernel_sizes("FLASHMLA", 64, new), new) == 32
    assert primary_block(32, 64, "FLASHMLA", kernel_sizes("FLASHMLA", 64, old), old) == 64


def hybrid(release: str, mode: str = "none", token_bytes: int = 1024, state: int = 550_000, block: int = 16, **changes):
    plain = {
        "backend": "FLASH_ATTN",
        "sizes": FLASH,
        "latent": False,
        "wide_blackwell": False,
        "chunk": 256,
        "checkpoint": 1,
    }
    return align_hybrid(
        block=block,
        token_bytes=token_bytes,
        state_bytes=state,
        mode=mode,
        max_model_len=32768,
        rules=rules(release),
        **{**plain, **changes},
    )


@pytest.mark.parametrize("release", ["0.10.2", "0.16.0", "0.24.0", "0.32.0"])
def test_attention_blocks_grow_until_they_cover_a_state(release: str) -> None:
    aligned = hybrid(release)
    assert (aligned.block, aligned.state_block, aligned.state_page) == (544, 32768, 544 * 1024)
    assert any("544 tokens" in line for line in aligned.notes)


def test_state_blocks_follow_the_mode() -> None:
    assert hybrid("0.32.0", "align").state_block == 544
    assert (hybrid("0.28.0", "all").block, hybrid("0.28.0", "all").state_block) == (768, 768)


def test_a_block_that_is_large_enough_stays() -> None:
    aligned = hybrid("0.32.0", block=1024)
    assert (aligned.block, aligned.state_page) == (1024, 1024 * 1024)


def test_states_that_fit_exactly_are_not_padded() -> None:
    assert hybrid("0.32.0", state=544 * 1024).state_page is None
    assert hybrid("0.32.0", state=0).state_page is None


def test_latent_caches_align_to_64() -> None:
    assert hybrid("0.16.0", latent=True, token_bytes=1152).block == 512
    assert hybrid("0.32.0", latent=True, token_bytes=1152, sizes=KernelSizes((64,)), block=64).block == 512


def test_the_first_release_with_hybrids_only_suggests_a_block() -> None:
    with pytest.raises(EngineError, match="should be increased to at least 544"):
        hybrid("0.9.2")
    assert hybrid("0.9.2", block=1024).state_page == 1024 * 1024


def test_two_dtypes_share_a_page() -> None:
    shared = align_dtypes(16, 144, 512, None, FLASH)
    assert (shared.block, shared.page) == (64, 64 * 144)
    assert align_dtypes(16, 512, 512, None, FLASH).page is None


def test_windowed_layers_choose_their_block_since_0_25() -> None:
    assert window_block(64, 4096, None, FLASH, rules("0.24.0")) == 64
    assert window_block(64, 4096, None, FLASH, rules("0.25.1")) == 16
    assert window_block(64, 4096, None, FLASH, rules("0.32.0")) == 64
    assert window_block(48, 4096, None, LISTED, rules("0.32.0")) == 32
    assert window_block(64, 4096, 200_000, LISTED, rules("0.32.0")) == 32


def test_no_common_block_names_the_backend() -> None:
    text = no_common_block(24, "FLASHINFER", LISTED, rules("0.32.0"))
    assert text is not None
    assert "24" in text
    assert no_common_block(32, "FLASHINFER", LISTED, rules("0.32.0")) is None
