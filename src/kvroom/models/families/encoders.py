"""Models with an encoder: cross attention next to the decoder's own, or no cache at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvroom.errors import BadConfig
from kvroom.models.families.common import full_attention, indices, layer_count, number
from kvroom.models.shape import AttentionCache, AttentionKind, Cache, CacheLayer

if TYPE_CHECKING:
    from kvroom.models.fields import Fields


def no_cache(config: Fields) -> tuple[CacheLayer, ...]:
    """Encoder-only models attend within one pass and keep nothing."""
    layer_count(config)
    return ()


def encoder_decoder(config: Fields) -> tuple[CacheLayer, ...]:
    """Whisper, BART: each decoder layer keeps its own keys and the encoder's (models/whisper.py)."""
    count = config.int("decoder_layers", "num_hidden_layers", low=1)
    if count > 2048:
        raise BadConfig(f"{config.where}: {count} decoder layers is more than any model has.")
    heads = config.int("decoder_attention_heads", "num_attention_heads", low=1)
    size = config.int("d_model", "hidden_size", low=1) // heads
    own = AttentionCache(AttentionKind.FULL, heads, size, size)
    layer: list[tuple[Cache, str]] = [
        (own, "self_attn.attn"),
        (replace(own, kind=AttentionKind.CROSS), "encoder_attn.attn"),
    ]
    return number([layer] * count, "self_attn.attn")


def cross_layers(config: Fields) -> tuple[CacheLayer, ...]:
    """Llama 3.2 Vision: the layers in ``cross_attention_layers`` look at the image only (mllama.py)."""
    full = full_attention(config)
    cross = replace(full, kind=AttentionKind.CROSS)
    chosen = indices(config, "cross_attention_layers") or frozenset(range(3, layer_count(config), 5))
    return number([cross if i in chosen else full for i in range(layer_count(config))], "self_attn.attn")
