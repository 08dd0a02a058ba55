"""How many heads attention has and how wide they are, under the many names configs give them.

Mirrors vLLM's ``transformers_utils/model_arch_config_convertor.py`` (``get_total_num_kv_heads``,
``get_head_size``) and, where a model class decides differently, that class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvroom.errors import BadConfig

if TYPE_CHECKING:
    from kvroom.models.fields import Fields

FALCON = frozenset({"falcon", "RefinedWeb", "RefinedWebModel"})
KV_NAMES = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention heads of the whole model, before tensor parallelism; all zero when no layer attends."""

    query: int
    kv: int
    size: int
    """Width of one key head."""


def read_heads(config: Fields) -> Heads:
    """The heads of an ordinary attention layer. Raises BadConfig when query heads do not share evenly."""
    query = config.maybe_int("num_attention_heads", "n_head", "n_heads") or 0
    if query == 0:
        return Heads(0, 0, 0)
    kv = _kv_heads(config, query)
    if kv < 1 or query % kv:
        raise BadConfig(
            f"{config.where}: {query} attention heads cannot share {kv} KV heads evenly.",
            "vLLM refuses such a model; check num_attention_heads and num_key_value_heads.",
        )
    return Heads(query, kv, head_size(config, query))


def head_size(config: Fields, query_heads: int) -> int:
    """Width of one head: stated, or the hidden size split over the heads."""
    for name in ("head_dim", "hidden_size_per_head", "attention_head_dim"):
        stated = config.maybe_int(name)
        if stated:
            return stated
    return config.int("hidden_size", "n_embd", "d_model", low=1) // query_heads


def _kv_heads(config: Fields, query: int) -> int:
    kind = config.str("model_type")
    if kind in FALCON and not config.bool("new_decoder_architecture") and config.bool("multi_query"):
        return 1
    if kind == "gpt_bigcode":
        return 1 if config.bool("multi_query", default=True) else query
    if kind == "chatglm" and not config.bool("multi_query_attention"):
        return query
    attention = config.sub("attn_config")  # DBRX, MPT
    if attention is not None and "kv_n_heads" in attention:
        return attention.int("kv_n_heads", low=1)
    return config.int(*KV_NAMES, default=query)
