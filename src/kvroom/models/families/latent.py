"""Multi-head latent attention: one vector a token (DeepSeek and kin), its sparse forms, and DeepSeek-V4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.errors import BadConfig
from kvroom.models.families.common import kind_of, layer_count, number, per_layer
from kvroom.models.shape import Cache, CacheLayer, CompressorCache, IndexerCache, MlaCache

if TYPE_CHECKING:
    from kvroom.models.fields import Fields

ATTENTION = "self_attn.attn"
INDEX_SCALE_BYTES = 4
INDEX_QUANT_BLOCK = 128
"""One float32 scale for every 128 values of an indexer key."""
V4_STATE_BLOCK = {4: 4, 128: 8}
"""Compression ratio -> tokens in one block of compressor states (models/deepseek_v4/compressor.py)."""


def latent_cache(config: Fields, *, sparse: bool = False) -> MlaCache:
    """The latent cache of one layer: compressed keys and values, and the rotary part."""
    return MlaCache(config.int("kv_lora_rank", low=1), config.int("qk_rope_head_dim", default=0), sparse)


def dense(config: Fields) -> tuple[CacheLayer, ...]:
    """One latent vector a token on every layer (two attentions a layer in LongCat-Flash)."""
    caches: list[Cache] = [latent_cache(config)] * layer_count(config)
    if kind_of(config) == "longcat_flash":
        sublayers = [(caches[0], "self_attn.0.attn"), (caches[0], "self_attn.1.attn")]
        return number([sublayers] * config.int("num_layers", low=1), ATTENTION)
    return number(caches, ATTENTION)


def indexed(config: Fields) -> tuple[CacheLayer, ...]:
    """DeepSeek-V3.2 and GLM-5: a latent cache on every layer, an indexer's keys where the layer has one.

    GLM-5 layers may reuse the previous indexer's choice (``index_topk_pattern``, ``index_topk_freq``;
    vllm/models/deepseek_v32/attention.py) and then keep no keys of their own.
    """
    mla = latent_cache(config, sparse=True)
    own: list[tuple[Cache, str]] = [(index_keys(config), "self_attn.indexer.k_cache"), (mla, ATTENTION)]
    return number([own if each else mla for each in has_indexer(config)], ATTENTION)


def index_keys(config: Fields, compress_ratio: int = 1) -> IndexerCache:
    """The indexer's key cache of one layer: quantised values and their scales, in bytes."""
    size = config.int("index_head_dim", default=128, low=1)
    return IndexerCache(size + size // INDEX_QUANT_BLOCK * INDEX_SCALE_BYTES, compress_ratio)


def has_indexer(config: Fields) -> tuple[bool, ...]:
    """Whether each layer chooses its tokens itself, rather than following an earlier layer's indexer."""
    count = layer_count(config)
    pattern = config.raw.get("index_topk_pattern")
    if isinstance(pattern, str | list):
        return tuple(index >= len(pattern) or pattern[index] not in ("S", "shared") for index in range(count))
    every = config.int("index_topk_freq", default=1, low=1)
    offset = config.int("index_skip_topk_offset", default=2)
    return tuple(max(index - offset + 1, 0) % every == 0 for index in range(count))


def compressed(config: Fields) -> tuple[CacheLayer, ...]:
    """DeepSeek-V4: a sliding window on every layer, and compressed states behind it on most.

    Layers with ratio 4 also have an indexer over the compressed states; each compressor keeps the
    float32 states of the tokens it has not compressed yet (vllm/models/deepseek_v4).
    """
    count = layer_count(config)
    ratios = per_layer(config, "compress_ratios", count, int)
    if ratios is None:
        raise BadConfig(f"{config.where} has no 'compress_ratios', which DeepSeek-V4's cache needs.")
    return number([_v4_layer(config, max(1, ratio)) for ratio in ratios], "attn")


def window_only(config: Fields) -> list[tuple[Cache, str]]:
    """DeepSeek-V4's uncompressed layer, which its multi-token-prediction layers are too."""
    return _v4_layer(config, 1)


def _v4_layer(config: Fields, ratio: int) -> list[tuple[Cache, str]]:
    width = config.int("head_dim", default=512, low=1)
    rope = config.int("qk_rope_head_dim", default=64)
    window = MlaCache(width - rope, rope, sparse=True, window=config.int("sliding_window", default=128, low=1))
    if ratio == 1:
        return [(window, "attn.swa_cache")]
    if ratio not in V4_STATE_BLOCK:
        raise BadConfig(f"{config.where}: a compression ratio of {ratio} is not 4 or 128, all vLLM knows.")
    states = MlaCache(width - rope, rope, sparse=True, compress_ratio=ratio)
    parts: list[tuple[Cache, str]] = []
    if ratio == 4:
        index_width = config.int("index_head_dim", default=128, low=1)
        parts.append((index_keys(config, ratio), "attn.indexer.k_cache"))
        parts.append((_compressor(index_width, ratio), "attn.indexer.compressor.state_cache"))
    parts += [(window, "attn.swa_cache"), (states, "attn")]
    parts.append((_compressor(width, ratio), "attn.compressor.state_cache"))
    return parts


def _compressor(width: int, ratio: int) -> CompressorCache:
    overlap = 2 if ratio == 4 else 1
    return CompressorCache(2 * overlap * width, overlap * ratio, V4_STATE_BLOCK[ratio])
