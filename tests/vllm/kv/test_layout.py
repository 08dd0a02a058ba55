from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vllm.kv.makers import RELEASES, settings, shape

from kvroom.errors import EngineError
from kvroom.models.shape import AttentionCache, AttentionKind, StateCache, StateKind
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.kv.layout import KvLayout, layout_of

FULL = AttentionCache(AttentionKind.FULL, 8, 128, 128)
WINDOW = AttentionCache(AttentionKind.SLIDING, 8, 128, 128, 1024)
LLAMA = shape([FULL] * 32)
GEMMA = shape(([WINDOW] * 5 + [FULL]) * 4)
STATE = StateCache(StateKind.MAMBA2, inner=8192, heads=128, head_size=64, state_size=128, groups=8, conv_kernel=4)
HYBRID = shape(([STATE] * 3 + [FULL]) * 4)
MODELS = {"llama": LLAMA, "gemma": GEMMA, "hybrid": HYBRID}


def layout(model=LLAMA, release: str = "0.32.0", *, stage: int = 0, changes: dict | None = None, **args) -> KvLayout:
    return layout_of(model, EngineArgs(**args), settings(release, **(changes or {})), "FLASH_ATTN", None, stage=stage)


@pytest.mark.parametrize("release", RELEASES)
def test_a_plain_model(release: str) -> None:
    found = layout(release=release)
    assert (found.block_size, found.bytes_per_block) == (16, 32 * 16 * 4096)
    assert found.needed_bytes(8192) in {8192 * 32 * 4096, 8192 * 32 * 4096 + found.bytes_per_block}


def test_equal_launches_share_a_layout() -> None:
    assert layout() is layout()
    assert layout(changes={"max_model_len": 99}) is layout()
    assert layout(tensor_parallel_size=2) is not layout()
    assert layout(HYBRID, changes={"max_model_len": 99}) is not layout(HYBRID)


def test_the_window_bounds_what_a_request_takes() -> None:
    found = layout(GEMMA)
    growth = found.needed_bytes(131072) - found.needed_bytes(65536)
    assert growth == 65536 * 4 * 4096


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("release", ["0.10.2", "0.16.0", "0.24.0", "0.33.0"])
def test_longer_requests_never_take_less(model: str, release: str) -> None:
    found = layout(MODELS[model], release)
    needs = [found.needed_bytes(length) for length in range(1, 40_000, 77)]
    assert needs == sorted(needs)
    blocks = [found.request_blocks(length) for length in range(1, 40_000, 77)]
    assert blocks == sorted(blocks)


@given(st.integers(0, 1 << 36), st.sampled_from(sorted(MODELS)), st.sampled_from(["0.10.2", "0.19.1", "0.33.0"]))
def test_the_longest_length_is_the_last_that_fits(limit: int, model: str, release: str) -> None:
    found = layout(MODELS[model], release)
    longest = found.longest(limit, 131072)
    assert longest == 0 or found.needed_bytes(longest) <= limit
    assert longest == 131072 or found.needed_bytes(longest + 1) > limit


def test_stages_share_the_layers() -> None:
    stages = [layout(pipeline_parallel_size=3, stage=stage) for stage in range(3)]
    assert [stage.bytes_per_block // (16 * 4096) for stage in stages] == [11, 11, 10]
    given_ = [
        layout(pipeline_parallel_size=3, stage=stage, env={"VLLM_PP_LAYER_PARTITION": "2,20,10"}) for stage in range(3)
    ]
    assert [stage.bytes_per_block // (16 * 4096) for stage in given_] == [2, 20, 10]


def test_context_parallel_ranks_share_a_request() -> None:
    plain, spread = layout(), layout(decode_context_parallel_size=2)
    assert spread.request_blocks(8192) == plain.request_blocks(4096)


def test_windows_refuse_context_parallelism() -> None:
    assert layout(GEMMA, decode_context_parallel_size=2).refusal == "DCP not support sliding window."


def test_states_make_attention_blocks_longer() -> None:
    found = layout(HYBRID)
    assert found.block_size > 16
    assert len({group.spec.page_bytes for group in found.groups}) == 1
    assert any("attention block size" in line for line in found.warnings)


def test_v0_keeps_every_token_of_every_layer() -> None:
    found = layout(GEMMA, "0.7.3", changes={"engine": "V0"})
    assert found.bytes_per_block == 24 * 16 * 4096
    assert found.needed_bytes(4096) == 256 * found.bytes_per_block
    assert found.cpu_blocks == (4 << 30) // found.bytes_per_block


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"kv_cache_dtype": "turboquant_k8v4"}, "TurboQuant KV cache is not supported for hybrid"),
        ({"speculative_tokens": 2}, "Mamba with speculative decoding is not supported yet."),
    ],
)
def test_what_old_releases_refuse_of_hybrids(changes: dict, text: str) -> None:
    release = "0.20.2" if "kv_cache_dtype" in changes else "0.10.2"
    with pytest.raises(EngineError, match=text):
        layout(HYBRID, release, changes=changes)


def test_a_format_that_is_not_modelled_is_said() -> None:
    with pytest.raises(EngineError, match="ultraquant_4bit is not modelled"):
        layout(changes={"kv_cache_dtype": "ultraquant_4bit"})
