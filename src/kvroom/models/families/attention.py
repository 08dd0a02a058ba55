"""Ordinary attention, layer by layer: full, sliding windows, chunks, and layers that share a cache.

Which layers slide is decided as the configuration class and vLLM's model class decide it together:
``layer_types`` where given, else the class's pattern; a window that applies to every layer or to none
follows ``EngineArgs.create_engine_config`` (engine/arg_utils.py).
"""

from __future__ import annotations

from dataclasses import replace

from kvroom.errors import BadConfig
from kvroom.models.families.common import (
    ATTENTION_PATHS,
    full_attention,
    kind_of,
    layer_count,
    number,
    per_layer,
)
from kvroom.models.fields import Fields
from kvroom.models.shape import AttentionCache, AttentionKind, Cache, CacheLayer

SLIDING = "sliding_attention"
FULL = "full_attention"
PATTERNS = {
    "gemma2": ("", 2),
    "vaultgemma": ("", 2),
    "gemma3": ("sliding_window_pattern", 6),
    "gemma3n": ("", 5),
    "gemma4": ("", 6),
    "gemma4_unified": ("", 6),
    "cohere2": ("sliding_window_pattern", 4),
    "exaone4": ("sliding_window_pattern", 4),
    "exaone_moe": ("sliding_window_pattern", 4),
    "olmo3": ("", 4),
    "afmoe": ("global_attn_every_n_layers", 4),
}
"""model_type -> the field that says how often a layer is global, and its default: every n-th is."""
FIRST_OF_FOUR = frozenset({"cwm", "granite_swa", "granitemoe_swa"})
"""Layers 0, 4, 8, ... are global, the others slide."""
WHOLE_MODEL_WINDOW = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_vl", "qwen2_5_vl"})
"""vLLM gives these a window on every layer or on none."""
INCLUSIVE = frozenset({"cohere2", "cohere2_moe"})
SINKS = frozenset({"gpt_oss", "granite_swa", "granitemoe_swa"})


def uniform_or_windows(config: Fields) -> tuple[CacheLayer, ...]:
    """Full attention everywhere, or with sliding windows on some layers or all."""
    kind, count = kind_of(config), layer_count(config)
    full = full_attention(config, sinks=kind in SINKS)
    window = model_window(config)
    types = layer_types(config, count)
    path = ATTENTION_PATHS.get(kind, "self_attn.attn")
    if window is None:
        return number([full] * count, path)
    sliding = replace(full, kind=AttentionKind.SLIDING, window=window, inclusive_window=kind in INCLUSIVE)
    if types is None or all(each == SLIDING for each in types):
        return number([sliding] * count, path)
    if kind in WHOLE_MODEL_WINDOW:
        return number([full] * count, path)
    return number([sliding if each == SLIDING else full for each in types], path)


def model_window(config: Fields) -> int | None:
    """The config's sliding window in tokens, None when there is none or it is switched off."""
    if "use_sliding_window" in config and not config.bool("use_sliding_window"):
        return None
    return config.maybe_int("sliding_window") or None


def layer_types(config: Fields, count: int) -> tuple[str, ...] | None:
    """What each layer attends to, stated or by the class's pattern; None where the class says nothing."""
    kind = kind_of(config)
    if kind == "gpt_oss":  # vLLM goes by the layer's number, whatever the config lists
        return tuple(SLIDING if index % 2 == 0 else FULL for index in range(count))
    stated = per_layer(config, "layer_types", count)
    types = stated if stated is not None else _by_pattern(config, kind, count)
    if types and kind.startswith("gemma4"):
        types = (*types[:-1], FULL)
    return types


def _by_pattern(config: Fields, kind: str, count: int) -> tuple[str, ...] | None:
    if kind in FIRST_OF_FOUR:
        return tuple(FULL if index % 4 == 0 else SLIDING for index in range(count))
    if kind == "ministral":
        return (SLIDING,) * count
    if kind in WHOLE_MODEL_WINDOW:
        first = config.int("max_window_layers", default=28)
        return tuple(SLIDING if index >= first else FULL for index in range(count))
    if kind == "smollm3":
        return (FULL,) * count
    if kind not in PATTERNS:
        return None
    field, every = PATTERNS[kind]
    stated = config.raw.get(field) if field else None
    if isinstance(stated, str) and stated:  # EXAONE 4: "LLLG"
        return tuple(SLIDING if stated[index % len(stated)] == "L" else FULL for index in range(count))
    if field:
        every = config.int(field, default=every)
    return tuple(SLIDING if every and (index + 1) % every else FULL for index in range(count))


def shared_tail(config: Fields) -> tuple[CacheLayer, ...]:
    """Gemma 3n and 4: the last ``num_kv_shared_layers`` layers read an earlier layer's cache.

    Gemma 4's full-attention layers have their own head size and, where ``attention_k_eq_v``, their own
    number of KV heads (vllm/model_executor/models/gemma4.py).
    """
    kind, count = kind_of(config), layer_count(config)
    own = count - min(count, config.int("num_kv_shared_layers", default=15 if kind == "gemma3n" else 0))
    local = full_attention(config)
    full = local
    if kind.startswith("gemma4"):
        size = config.int("global_head_dim", default=512, low=1)
        kv_heads = local.kv_heads
        if config.bool("attention_k_eq_v", default=True):
            kv_heads = config.int("num_global_key_value_heads", default=kv_heads, low=1)
        full = replace(local, kv_heads=kv_heads, head_size=size, head_size_v=size)
    sliding = replace(local, kind=AttentionKind.SLIDING, window=model_window(config) or 512)
    types = layer_types(config, count) or (FULL,) * count
    return number([sliding if each == SLIDING else full for each in types[:own]], "self_attn.attn")


def chunked(config: Fields) -> tuple[CacheLayer, ...]:
    """Llama 4: layers with rotary embeddings attend within chunks (vllm/model_executor/models/llama4.py)."""
    count = layer_count(config)
    full = full_attention(config)
    chunk = config.maybe_int("attention_chunk_size")
    rope = per_layer(config, "no_rope_layers", count, int) if config.list("no_rope_layers") else None
    every = config.int("no_rope_layer_interval", default=4, low=1)
    rope = rope or tuple(int((index + 1) % every != 0) for index in range(count))
    local: AttentionCache = replace(full, kind=AttentionKind.CHUNKED, window=chunk) if chunk else full
    return number([local if each else full for each in rope], "self_attn.attn")


def unequal_values(config: Fields) -> tuple[CacheLayer, ...]:
    """MiMo-V2: values narrower than keys, and other heads on the sliding layers (mimo_v2.py)."""
    count = layer_count(config)
    full = full_attention(config)
    full = replace(full, head_size_v=config.int("v_head_dim", default=full.head_size, low=1))
    size = config.int("swa_head_dim", default=full.head_size, low=1)
    sliding = AttentionCache(
        AttentionKind.SLIDING,
        config.int("swa_num_key_value_heads", default=full.kv_heads, low=1),
        size,
        config.int("swa_v_head_dim", "v_head_dim", default=size, low=1),
        window=config.int("sliding_window_size", "sliding_window", default=128, low=1),
        sinks=config.bool("add_swa_attention_sink_bias"),
    )
    pattern = per_layer(config, "hybrid_layer_pattern", count, int)
    pattern = pattern or tuple(int(index > 0 and (index + 1) % 6 != 0) for index in range(count))
    return number([sliding if each == 1 else full for each in pattern], "self_attn.attn")


def step(config: Fields) -> tuple[CacheLayer, ...]:
    """Step 3.5 and 3.7: windows by ``layer_types`` or on every other layer, with other heads there."""
    count = layer_count(config)
    full = full_attention(config)
    window = model_window(config)
    if window is None:
        return number([full] * count, "self_attn.attn")
    types = per_layer(config, "layer_types", count)
    types = types or tuple(SLIDING if index % 2 == 0 else FULL for index in range(count))
    other = config.sub("attention_other_setting")
    special, special_type = full, SLIDING
    if other is not None:
        size = other.int("head_dim", default=full.head_size, low=1)
        groups = other.int("num_attention_groups", default=full.kv_heads, low=1)
        special = replace(full, kv_heads=groups, head_size=size, head_size_v=size)
        special_type = other.str("attention_type", default=SLIDING)
    caches: list[Cache] = []
    for each in types:
        base = special if each == special_type else full
        caches.append(replace(base, kind=AttentionKind.SLIDING, window=window) if each == SLIDING else base)
    return number(caches, "self_attn.attn")


def blocks(config: Fields) -> tuple[CacheLayer, ...]:
    """Nemotron-NAS (DeciLM): each block has its own number of KV heads, or no attention at all."""
    count = layer_count(config)
    full = full_attention(config)
    heads = config.int("num_attention_heads", low=1)
    caches: list[Cache | None] = []
    for index, block in enumerate(per_layer(config, "block_configs", count, dict) or ()):
        attention = Fields(block, f"{config.where}: block {index}").sub("attention")
        if attention is None or attention.bool("no_op") or attention.bool("replace_with_linear"):
            caches.append(None)
            continue
        group = attention.int("n_heads_in_group", low=1)
        if heads % group:
            raise BadConfig(f"{attention.where}: groups of {group} do not divide {heads} heads.")
        caches.append(replace(full, kv_heads=heads // group))
    return number(caches, "self_attn.attn")


def unfused_latent(config: Fields) -> tuple[CacheLayer, ...]:
    """MLA that vLLM keeps as ordinary keys and values of the full width (MiniCPM3)."""
    heads = config.int("num_attention_heads", low=1)
    width = config.int("qk_nope_head_dim") + config.int("qk_rope_head_dim")
    cache = AttentionCache(AttentionKind.FULL, heads, width, width)
    return number([cache] * layer_count(config), "self_attn.attn")
