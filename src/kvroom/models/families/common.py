"""What the families share: the layer count, lists with one value a layer, and runs of equal layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kvroom.errors import BadConfig
from kvroom.models.heads import read_heads
from kvroom.models.shape import AttentionCache, AttentionKind, Cache, CacheLayer

if TYPE_CHECKING:
    from kvroom.models.fields import Fields

MAX_LAYERS = 2048
MAX_DRAFTS = 64
"""No decoder comes near; a larger count is an error or an attack, and is not worked through."""
ATTENTION_PATHS = {
    "gpt_oss": "attn.attn",
    "gpt2": "attn.attn",
    "gptj": "attn.attn",
    "chatglm": "self_attention.attn",
    "falcon": "self_attention.attn",
    "bloom": "self_attention.attn",
    "jamba": "attn",
    "nemotron_h": "mixer.attn",
}
"""vLLM's module path of the attention below its layer, where it is not ``self_attn.attn``."""


def kind_of(config: Fields) -> str:
    """The model_type without the ``_text`` that vision-language models put behind it."""
    return config.str("model_type").removesuffix("_text_model").removesuffix("_text")


def layer_count(config: Fields) -> int:
    """Decoder layers. Raises BadConfig when none is stated, or absurdly many."""
    count = config.int("num_hidden_layers", "n_layer", "n_layers", "num_layers", low=0)
    if count > MAX_LAYERS:
        raise BadConfig(f"{config.where}: {count} layers is more than any model has (limit {MAX_LAYERS}).")
    return count


def per_layer(config: Fields, name: str, count: int, kind: type = str) -> tuple[Any, ...] | None:
    """The list ``name``, cut to ``count`` layers; None when absent.

    Raises BadConfig when it is shorter or holds anything but ``kind``.
    """
    if name not in config:
        return None
    values = config.list(name)
    if len(values) < count:
        raise BadConfig(f"{config.where}: '{name}' has {len(values)} entries for {count} layers.")
    values = values[:count]
    if not all(isinstance(value, kind) for value in values):
        raise BadConfig(f"{config.where}: '{name}' should hold one {kind.__name__} a layer.")
    return tuple(values)


def indices(config: Fields, name: str) -> frozenset[int]:
    """The list of layer numbers ``name`` (empty when absent). Raises BadConfig for anything but integers."""
    values = config.list(name)
    if not all(isinstance(value, int) for value in values):
        raise BadConfig(f"{config.where}: '{name}' should be a list of layer numbers.")
    return frozenset(values)


def full_attention(config: Fields, *, sinks: bool = False) -> AttentionCache:
    """The cache of an ordinary full-attention layer. Raises BadConfig when the config has no heads."""
    heads = read_heads(config)
    if heads.query == 0:
        raise BadConfig(f"{config.where} has no 'num_attention_heads', which the KV cache needs.")
    return AttentionCache(AttentionKind.FULL, heads.kv, heads.size, heads.size, sinks=sinks)


def number(caches: Iterable[Cache | Sequence[tuple[Cache, str]] | None], path: str) -> tuple[CacheLayer, ...]:
    """Layers numbered from 0; an entry is a cache at ``path``, several with their own paths, or None."""
    layers: list[CacheLayer] = []
    for index, entry in enumerate(caches):
        if entry is None:
            continue
        if isinstance(entry, Sequence):
            layers.extend(CacheLayer(index, cache, name) for cache, name in entry)
        else:
            layers.append(CacheLayer(index, entry, path))
    return tuple(layers)
