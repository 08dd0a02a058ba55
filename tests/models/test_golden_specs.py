"""The caches of every model in tests/data/models/kv_specs.json, as vLLM 0.32.0 itself published them."""

import json
from collections import Counter
from pathlib import Path

import pytest

from kvroom.models import catalogue
from kvroom.models.config import read_config
from kvroom.models.shape import (
    AttentionCache,
    AttentionKind,
    Cache,
    CompressorCache,
    IndexerCache,
    MlaCache,
    StateCache,
    StateKind,
)

GOLDEN = json.loads(Path(__file__).parents[1].joinpath("data/models/kv_specs.json").read_text("utf-8"))
TYPES = {
    AttentionKind.FULL: "FullAttention",
    AttentionKind.SLIDING: "SlidingWindow",
    AttentionKind.CHUNKED: "ChunkedLocalAttention",
    AttentionKind.CROSS: "CrossAttention",
}


def state_shapes(state: StateCache, tp: int) -> list[list[int]]:
    """The shapes of vLLM's MambaStateShapeCalculator, written out again for the comparison."""
    taps = state.conv_kernel - 1
    match state.kind:
        case StateKind.MAMBA1:
            return [[taps, state.inner // tp], [state.inner // tp, state.state_size]]
        case StateKind.MAMBA2:
            groups = state.groups if state.groups % tp == 0 else tp
            width = state.inner + 2 * groups * state.state_size
            return [[taps, width // tp], [state.heads // tp, state.head_size, state.state_size]]
        case StateKind.GATED_DELTA_NET | StateKind.KDA:
            width = 2 * state.key_heads * state.key_size + state.heads * state.head_size
            return [[taps, width // tp], [state.heads // tp, state.head_size, state.key_size]]
        case StateKind.SHORT_CONV:
            return [[taps, state.inner // tp]]
        case StateKind.LINEAR:
            return [[state.heads // tp, state.head_size, state.head_size]]


def as_vllm(cache: Cache, tp: int) -> tuple[object, ...]:
    match cache:
        case AttentionCache():
            window = (cache.window or 0) + cache.inclusive_window
            heads = max(1, cache.kv_heads // tp)
            return (TYPES[cache.kind], heads, cache.head_size, cache.head_size_v, window)
        case MlaCache():
            kind = "SlidingWindowMLA" if cache.window else "MLAAttention"
            return (kind, 1, cache.kv_lora_rank + cache.rope_size, 0, cache.window or 0)
        case IndexerCache():
            return ("MLAAttention", 1, cache.head_size, 0, 0)
        case CompressorCache():
            return ("SlidingWindowMLA", 1, cache.head_size, 0, cache.window)
        case StateCache():
            return ("Mamba", json.dumps(state_shapes(cache, tp)))


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['model']}-tp{case['tp']}")
def test_caches_are_those_vllm_publishes(case: dict) -> None:
    entry = catalogue.find(case["model"]) if "config" not in case else None
    shape = read_config(entry.config if entry else case["config"], name=case["model"])

    ours = Counter(as_vllm(layer.cache, case["tp"]) for layer in shape.caches)

    theirs = {tuple(json.dumps(v) if isinstance(v, list) else v for v in spec): n for n, *spec in case["specs"]}
    assert ours == theirs
    assert list(ours) == list(theirs), "in the order of first appearance, which decides vLLM's groups"


WITH_LENGTH = [case for case in GOLDEN["cases"] if "max_model_len" in case]


@pytest.mark.parametrize("case", WITH_LENGTH, ids=lambda case: f"{case['model']}-tp{case['tp']}")
def test_position_limits_give_vllm_max_model_len(case: dict) -> None:
    entry = catalogue.find(case["model"]) if "config" not in case else None
    shape = read_config(entry.config if entry else case["config"], name=case["model"])

    limits = dict(shape.position_limits)
    length = limits.get("model_max_length") or min(limits.values(), default=2048)
    if "gemma3" not in shape.model_type and shape.rope.rope_type in ("linear", "dynamic", "default"):
        length = int(length * shape.rope.factor)
    if shape.rope.rope_type == "longrope":
        length = shape.rope.original_max_position_embeddings or length

    assert length == case["max_model_len"]


def test_every_kind_of_cache_is_in_the_golden_data() -> None:
    seen = {spec[1] for case in GOLDEN["cases"] for spec in case["specs"]}

    attention = {"FullAttention", "SlidingWindow", "ChunkedLocalAttention"}
    assert seen >= attention | {"MLAAttention", "SlidingWindowMLA", "Mamba"}
    assert len(GOLDEN["cases"]) >= 200
