"""Mamba's recurrent states of fixed size: on every layer, or mixed with attention.

The state shapes follow vllm/model_executor/layers/mamba/mamba_utils.py (MambaStateShapeCalculator);
which layer is which follows the model classes and the configuration classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvroom.errors import BadConfig
from kvroom.models.families.common import full_attention, indices, kind_of, layer_count, number, per_layer
from kvroom.models.families.mixing import ATTENTION_WORDS, STATE_WORDS, attends_of, mixed
from kvroom.models.shape import Cache, CacheLayer, StateCache, StateKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvroom.models.fields import Fields


def mamba(config: Fields) -> tuple[CacheLayer, ...]:
    """Mamba 1 on every layer (Mamba, FalconMamba)."""
    inner = config.int("expand", default=2) * config.int("hidden_size", low=1)
    state = _mamba1(config, config.int("intermediate_size", default=inner), "state_size", "conv_kernel")
    return number([state] * layer_count(config), "mixer")


def mamba2(config: Fields) -> tuple[CacheLayer, ...]:
    """Mamba 2 on every layer (Codestral Mamba)."""
    state = StateCache(
        StateKind.MAMBA2,
        inner=config.int("expand", default=2) * config.int("hidden_size", low=1),
        heads=config.int("num_heads", low=1),
        head_size=config.int("head_dim", low=1),
        state_size=config.int("state_size", low=1),
        groups=config.int("n_groups", default=1),
        conv_kernel=config.int("conv_kernel", default=4, low=1),
        chunk_size=config.maybe_int("chunk_size"),
    )
    return number([state] * layer_count(config), "mixer")


def jamba(config: Fields) -> tuple[CacheLayer, ...]:
    """Jamba: Mamba 1 with attention every ``attn_layer_period`` layers."""
    inner = config.int("mamba_expand", default=2) * config.int("hidden_size", low=1)
    state = _mamba1(config, inner, "mamba_d_state", "mamba_d_conv")
    period = config.int("attn_layer_period", default=8, low=1)
    offset = config.int("attn_layer_offset", default=4)
    attends = [index % period == offset for index in range(layer_count(config))]
    return mixed(attends, full_attention(config), "attn", state, "mixer")


def mamba2_and_attention(config: Fields) -> tuple[CacheLayer, ...]:
    """Bamba and Granite 4 H: a Mamba 2 layer or an attention layer."""
    count = layer_count(config)
    if kind_of(config) == "bamba":
        chosen = indices(config, "attn_layer_indices")
        attends: Sequence[bool] = [index in chosen for index in range(count)]
    else:
        attends = attends_of(config, per_layer(config, "layer_types", count) or ("mamba",) * count)
    attention = full_attention(config) if any(attends) else None
    return mixed(attends, attention, "self_attn.attn", _mamba2(config), "mixer")


def mamba2_beside_attention(config: Fields) -> tuple[CacheLayer, ...]:
    """Falcon-H1: attention and Mamba 2 side by side in every layer."""
    layer: list[tuple[Cache, str]] = [
        (full_attention(config), "self_attn.attn"),
        (_mamba2(config), "mamba.mixer"),
    ]
    return number([layer] * layer_count(config), "")


def zamba2(config: Fields) -> tuple[CacheLayer, ...]:
    """Zamba 2: Mamba 2 everywhere, shared attention blocks before the ``hybrid`` layers.

    vLLM builds the attention of all blocks first, block by block, then the Mamba layers.
    """
    count = layer_count(config)
    types = per_layer(config, "layers_block_type", count) or ("mamba",) * count
    attention = full_attention(config)
    if "attention_head_dim" not in config:
        size = 2 * config.int("hidden_size", low=1) // config.int("num_attention_heads", low=1)
        attention = replace(attention, head_size=size, head_size_v=size)
    inner = config.int("mamba_expand", default=2) * config.int("hidden_size", low=1)
    heads = config.int("n_mamba_heads", default=8, low=1)
    state = StateCache(
        StateKind.MAMBA2,
        inner=inner,
        heads=heads,
        head_size=config.int("mamba_headdim", default=inner // heads, low=1),
        state_size=config.int("mamba_d_state", default=64, low=1),
        groups=config.int("mamba_ngroups", default=1),
        conv_kernel=config.int("mamba_d_conv", default=4, low=1),
        chunk_size=config.maybe_int("chunk_size"),
    )
    hybrid, blocks = types.count("hybrid"), config.int("num_mem_blocks", default=1, low=1)
    turns = [turn for block in range(min(blocks, hybrid)) for turn in range(block, hybrid, blocks)]
    attending = tuple(CacheLayer(turn, attention, f"attn.{turn}") for turn in turns)
    return attending + tuple(CacheLayer(hybrid + index, state, "mixer") for index in range(count))


def nemotron_h(config: Fields) -> tuple[CacheLayer, ...]:
    """Nemotron-H: one block a layer, Mamba 2 (M), attention (*), dense (-) or experts (E)."""
    types = nemotron_blocks(config)
    state = StateCache(
        StateKind.MAMBA2,
        inner=config.int("mamba_num_heads", low=1) * config.int("mamba_head_dim", low=1),
        heads=config.int("mamba_num_heads", low=1),
        head_size=config.int("mamba_head_dim", low=1),
        state_size=config.int("ssm_state_size", default=128, low=1),
        groups=config.int("n_groups", "mamba_n_groups", default=8),
        conv_kernel=config.int("conv_kernel", "mamba_d_conv", default=4, low=1),
        state_dtype=config.str("mamba_ssm_cache_dtype") or None,
        chunk_size=config.maybe_int("chunk_size", "mamba_chunk_size"),
    )
    attention = full_attention(config) if ATTENTION_WORDS & set(types) else None
    caches = [state if each in STATE_WORDS else attention if each in ATTENTION_WORDS else None for each in types]
    paths = ["mixer.attn" if cache is attention else "mixer" for cache in caches]
    return number([c and [(c, p)] for c, p in zip(caches, paths, strict=True)], "mixer")


def nemotron_blocks(config: Fields) -> tuple[str, ...]:
    """The kind of each block, from ``hybrid_override_pattern`` or ``layers_block_type``."""
    pattern = config.str("hybrid_override_pattern")
    if pattern:
        return tuple(pattern)
    named = config.list("layers_block_type", "layer_types")
    if not named or not all(isinstance(each, str) for each in named):
        raise BadConfig(f"{config.where} says neither 'hybrid_override_pattern' nor 'layers_block_type'.")
    return tuple(named)


def plamo2(config: Fields) -> tuple[CacheLayer, ...]:
    """PLaMo 2: Mamba 2 without groups, attention in the middle of every ``mamba_step`` layers."""
    count = layer_count(config)
    step = config.int("mamba_step", default=2, low=2)
    heads = config.int("mamba_num_heads", low=1)
    size = config.int("hidden_size_per_head", low=1)
    state = StateCache(
        StateKind.MAMBA2,
        inner=heads * size,
        heads=heads,
        head_size=size,
        state_size=config.int("mamba_d_state", low=1),
        groups=0,
        conv_kernel=config.int("mamba_d_conv", default=4, low=1),
        chunk_size=config.maybe_int("mamba_chunk_size"),
    )
    if count <= step // 2:
        attends = [index == count - 1 for index in range(count)]
    else:
        attends = [index % step == step // 2 for index in range(count)]
    return mixed(attends, full_attention(config), "mixer.attn", state, "mixer")


def _mamba1(config: Fields, inner: int, state: str, kernel: str) -> StateCache:
    return StateCache(
        StateKind.MAMBA1,
        inner=inner,
        state_size=config.int(state, default=16, low=1),
        conv_kernel=config.int(kernel, default=4, low=1),
    )


def _mamba2(config: Fields) -> StateCache:
    """The fields of Bamba's layer, which Granite 4 and Falcon-H1 share."""
    inner = config.maybe_int("mamba_d_ssm") if kind_of(config) == "falcon_h1" else None
    inner = inner or config.int("mamba_expand", default=2) * config.int("hidden_size", low=1)
    heads = config.int("mamba_n_heads", default=128, low=1)
    stated = config.raw.get("mamba_d_head")
    size = config.int("mamba_d_head", low=1) if stated not in (None, "auto") else inner // heads
    return StateCache(
        StateKind.MAMBA2,
        inner=inner,
        heads=heads,
        head_size=size,
        state_size=config.int("mamba_d_state", default=256, low=1),
        groups=config.int("mamba_n_groups", default=1),
        conv_kernel=config.int("mamba_d_conv", default=4, low=1),
        chunk_size=config.maybe_int("mamba_chunk_size"),
    )
