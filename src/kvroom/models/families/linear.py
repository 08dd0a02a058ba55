"""Linear attention and short convolutions with full or latent attention every few layers.

The state shapes follow vllm/model_executor/layers/mamba/mamba_utils.py (MambaStateShapeCalculator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.models.families.common import full_attention, indices, layer_count, number, per_layer
from kvroom.models.families.latent import latent_cache
from kvroom.models.families.mixing import attends_of, mixed
from kvroom.models.shape import Cache, CacheLayer, StateCache, StateKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvroom.models.fields import Fields


def gated_delta_net(config: Fields) -> tuple[CacheLayer, ...]:
    """Qwen3-Next, Qwen3.5 and OLMo Hybrid: Gated DeltaNet with full attention every few layers."""
    count = layer_count(config)
    heads = config.int("num_attention_heads", low=1)
    key_heads = config.int("linear_num_key_heads", default=heads, low=1)
    key_size = config.maybe_int("linear_key_head_dim") or int(0.75 * config.int("hidden_size") / key_heads)
    state = StateCache(
        StateKind.GATED_DELTA_NET,
        heads=config.int("linear_num_value_heads", default=heads, low=1),
        head_size=config.int("linear_value_head_dim", default=2 * key_size, low=1),
        key_heads=key_heads,
        key_size=key_size,
        conv_kernel=config.int("linear_conv_kernel_dim", default=4, low=1),
        state_dtype=config.str("mamba_ssm_dtype") or None,
    )
    types = per_layer(config, "layer_types", count)
    every = config.int("full_attention_interval", default=4, low=1)
    attends = attends_of(config, types) if types else [(index + 1) % every == 0 for index in range(count)]
    return mixed(attends, full_attention(config), "self_attn.attn", state, "linear_attn")


def kimi_delta(config: Fields) -> tuple[CacheLayer, ...]:
    """Kimi-Linear and Kimi-K3: Kimi Delta Attention with latent attention every few layers."""
    count = layer_count(config)
    linear = config.sub("linear_attn_config")
    types = per_layer(config, "layer_types", count)
    if linear is not None:
        heads, size = linear.int("num_heads", low=1), linear.int("head_dim", low=1)
        kernel = linear.int("short_conv_kernel_size", default=4, low=1)
        recurrent = indices(linear, "kda_layers")  # numbered from 1
        attends: Sequence[bool] = [index + 1 not in recurrent for index in range(count)]
    elif types is not None:
        heads = config.int("linear_num_heads", default=config.int("num_attention_heads"), low=1)
        size = config.int("linear_head_dim", default=128, low=1)
        kernel = config.int("linear_conv_kernel_dim", default=4, low=1)
        attends = attends_of(config, types)
    else:
        return number([latent_cache(config)] * count, "self_attn.attn")
    state = StateCache(StateKind.KDA, heads=heads, head_size=size, key_heads=heads, key_size=size, conv_kernel=kernel)
    return mixed(attends, latent_cache(config), "self_attn.attn", state, "self_attn")


def short_conv(config: Fields) -> tuple[CacheLayer, ...]:
    """LFM2: short convolutions with full attention on the layers that ``layer_types`` names."""
    count = layer_count(config)
    types = per_layer(config, "layer_types", count)
    chosen = indices(config, "full_attn_idxs")
    attends = attends_of(config, types) if types else [index in chosen for index in range(count)]
    state = StateCache(
        StateKind.SHORT_CONV,
        inner=config.int("conv_dim", "hidden_size", low=1),
        conv_kernel=config.int("conv_L_cache", default=3, low=1),
    )
    return mixed(attends, full_attention(config), "self_attn.attn", state, "short_conv")


def softmax_every_few(config: Fields) -> tuple[CacheLayer, ...]:
    """MiniMax-Text-01 and Ring/Ling linear: linear attention with softmax attention every few layers."""
    count = layer_count(config)
    heads = config.int("num_attention_heads", low=1)
    size = config.maybe_int("head_dim") or config.int("hidden_size", low=1) // heads
    state = StateCache(StateKind.LINEAR, heads=heads, head_size=size)
    latent = "kv_lora_rank" in config
    attention: Cache = latent_cache(config) if latent else full_attention(config)
    group = config.maybe_int("layer_group_size")
    kinds = per_layer(config, "attn_type_list", count, int)
    types = per_layer(config, "layer_types", count)
    if kinds is not None:
        attends: Sequence[bool] = [each == 1 for each in kinds]
    elif types is not None:
        attends = attends_of(config, types)
    elif group:
        attends = [(index + 1) % group == 0 for index in range(count)]
    else:
        attends = [index % 2 == 0 for index in range(count)]
    return mixed(attends, attention, "self_attn.attn", state, "self_attn")
