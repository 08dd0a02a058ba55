"""MiniMax-M3: ordinary keys and values with an indexer's keys beside them on the sparse layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.models.families.common import full_attention, layer_count, number, per_layer
from kvroom.models.shape import Cache, CacheLayer, IndexerCache

if TYPE_CHECKING:
    from kvroom.models.fields import Fields


def sparse_heads(config: Fields) -> tuple[CacheLayer, ...]:
    """Full attention everywhere; a bfloat16 indexer key a token where ``sparse_attention_freq`` says.

    Mirrors vllm/models/minimax_m3/nvidia/model.py and common/indexer.py.
    """
    count = layer_count(config)
    full = full_attention(config)
    sparse = config.sub("sparse_attention_config")
    if sparse is None or not sparse.bool("use_sparse_attention", default=True):
        return number([full] * count, "self_attn.attn")
    chosen = per_layer(sparse, "sparse_attention_freq", count, int) or (1,) * count
    keys = IndexerCache(sparse.int("sparse_index_dim", default=128, low=1), dtype="bfloat16")
    both: list[tuple[Cache, str]] = [(keys, "self_attn.attn.index_cache"), (full, "self_attn.attn")]
    return number([both if each else full for each in chosen], "self_attn.attn")
