"""Shapes as MambaStateShapeCalculator of the named releases gave them."""

from __future__ import annotations

import pytest
from tests.vllm.kv.makers import rules

from kvroom.errors import EngineError
from kvroom.models.shape import StateCache, StateKind
from kvroom.vllm.kv.state_shapes import state_dtypes, state_shapes

QWEN3_NEXT = StateCache(StateKind.GATED_DELTA_NET, heads=32, head_size=128, key_heads=16, key_size=128, conv_kernel=4)
NEMOTRON = StateCache(StateKind.MAMBA2, inner=8192, heads=128, head_size=64, state_size=128, groups=8, conv_kernel=4)
JAMBA = StateCache(StateKind.MAMBA1, inner=8192, state_size=16, conv_kernel=4)
LFM2 = StateCache(StateKind.SHORT_CONV, inner=2048, conv_kernel=3)
MINIMAX = StateCache(StateKind.LINEAR, heads=64, head_size=128)


@pytest.mark.parametrize(
    ("cache", "tp", "expected"),
    [
        (QWEN3_NEXT, 1, ((3, 8192), (32, 128, 128))),
        (QWEN3_NEXT, 4, ((3, 2048), (8, 128, 128))),
        (NEMOTRON, 1, ((3, 10240), (128, 64, 128))),
        (NEMOTRON, 4, ((3, 2560), (32, 64, 128))),
        (NEMOTRON, 16, ((3, 768), (8, 64, 128))),
        (JAMBA, 2, ((3, 4096), (4096, 16))),
        (LFM2, 1, ((2, 2048),)),
        (MINIMAX, 8, ((8, 128, 128),)),
    ],
    ids=lambda value: value.kind.value if isinstance(value, StateCache) else None,
)
def test_shapes_on_a_rank(cache: StateCache, tp: int, expected: tuple[tuple[int, ...], ...]) -> None:
    found = state_shapes(cache, tp, 0, rules("0.28.0"))
    assert sorted(sorted(shape) for shape in found) == sorted(sorted(shape) for shape in expected)


def test_drafts_widen_the_convolution() -> None:
    plain, wider = (state_shapes(QWEN3_NEXT, 1, drafts, rules("0.28.0"))[0] for drafts in (0, 2))
    assert sorted(wider) == sorted((plain[0] + 2, plain[1]) if plain[0] < plain[1] else (plain[0], plain[1] + 2))


def test_heads_must_divide() -> None:
    with pytest.raises(EngineError, match="not divisible by 5"):
        state_shapes(QWEN3_NEXT, 5, 0, rules("0.28.0"))


def dtypes(cache: StateCache, release: str, architecture: str = "", **asked: str) -> tuple[str, ...]:
    chosen = {"conv": None, "recurrent": None, **asked}
    return state_dtypes(cache, dtype="bfloat16", architecture=architecture, rules=rules(release), **chosen)


def test_dtypes() -> None:
    assert dtypes(QWEN3_NEXT, "0.28.0") == ("bfloat16", "bfloat16")
    assert dtypes(QWEN3_NEXT, "0.28.0", recurrent="float32") == ("bfloat16", "float32")
    assert dtypes(QWEN3_NEXT, "0.16.0", recurrent="float32") == ("bfloat16", "bfloat16")
    assert dtypes(LFM2, "0.28.0", conv="float32") == ("float32",)


@pytest.mark.parametrize(("release", "expected"), [("0.16.0", "float16"), ("0.28.0", "float32")])
def test_a_config_without_a_state_dtype(release: str, expected: str) -> None:
    found = dtypes(NEMOTRON, release, architecture="NemotronHForCausalLM")
    assert found == ("bfloat16", expected)
