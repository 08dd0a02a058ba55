"""What every architecture's listing reads first: widths, counts, and which layers are sparse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.errors import BadConfig
from kvroom.models.fields import Fields

MAX_LAYERS = 2000
"""No decoder has more layers; a config that says so is refused before anything is listed."""

TIED = frozenset(
    {
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gemma3n",
        "gemma3n_text",
        "gemma4",
        "gemma4_text",
        "cohere",
        "cohere2",
        "starcoder2",
        "gpt2",
        "gpt_bigcode",
        "whisper",
        "lfm2",
        "lfm2_moe",
        "lfm2_vl",
        "smollm3",
        "ernie4_5",
        "ernie4_5_moe",
        "falcon",
        "bloom",
        "opt",
        "mpt",
        "minicpm",
        "minicpm3",
        "granitemoehybrid",
        "bamba",
        "bert",
        "modernbert",
    }
)
"""Model types whose output head is the embedding unless the config says otherwise."""


@dataclass(frozen=True, slots=True)
class Dims:
    """Widths and counts of a decoder."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    intermediate: int
    vocab: int
    tied: bool

    @property
    def every(self) -> range:
        """All layers."""
        return range(self.layers)


def layer_count(text: Fields) -> int:
    """Decoder layers, refused where absurd."""
    names = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers")
    kinds = text.raw.get("layers_block_type")
    default = len(kinds) if isinstance(kinds, list) else len(text.str("hybrid_override_pattern")) or None
    count = text.int(*names, default=default, low=1)
    if count > MAX_LAYERS:
        raise BadConfig(f"{text.where}: {count} layers are more than any model has.")
    return count


def dims_of(text: Fields) -> Dims:
    """The decoder's widths under whichever names the config uses.

    Raises BadConfig where the number of layers, the width or the heads are missing or absurd.
    """
    layers = layer_count(text)
    hidden = text.int("hidden_size", "n_embd", "d_model", low=1)
    heads = text.int(
        "num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", default=1, low=1
    )
    head = text.maybe_int("head_dim", "kv_channels", "attention_head_dim", low=1) or max(1, hidden // heads)
    kv_heads = text.maybe_int("num_key_value_heads", "num_kv_heads", "n_head_kv", low=1) or heads
    if text.bool("multi_query_attention"):
        kv_heads = text.int("multi_query_group_num", default=kv_heads, low=1)
    names = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "d_ff")
    intermediate = 4 * hidden if isinstance(text.raw.get(names[0]), list) else text.int(*names, default=4 * hidden)
    vocab = text.int("padded_vocab_size", "vocab_size", low=1)
    tied = text.bool("tie_word_embeddings", "tie_embedding", default=text.str("model_type") in TIED)
    return Dims(layers, hidden, heads, kv_heads, head, intermediate, vocab, tied)


def sparse_layers(text: Fields, layers: int) -> tuple[int, ...]:
    """Layers whose feed-forward part is routed experts, by whichever fields the config uses."""
    kinds = text.raw.get("mlp_layer_types")
    if isinstance(kinds, list):
        return tuple(i for i, kind in enumerate(kinds[:layers]) if kind == "sparse")
    freq = text.raw.get("moe_layer_freq")
    if isinstance(freq, list):
        return tuple(i for i, on in enumerate(freq[:layers]) if on)
    listed = text.raw.get("moe_layers")
    if isinstance(listed, list) and all(isinstance(i, int) for i in listed):
        return tuple(i for i in listed if 0 <= i < layers)
    if "moe_layers_enum" in text:
        numbers = [part for part in text.str("moe_layers_enum").split(",") if part.strip().isdigit()]
        return tuple(int(part) for part in numbers if int(part) < layers)
    if "interleave_moe_layer_step" in text:
        step = max(1, text.int("interleave_moe_layer_step"))
        return tuple(range(step - 1, layers, step))
    if "moe_layer_start_index" in text:
        start = text.int("moe_layer_start_index")
        end = min(text.int("moe_layer_end_index", default=layers - 1, low=-1) % layers, layers - 1)
        step = max(1, text.int("moe_layer_interval", default=1))
        return tuple(i for i in range(start, end + 1) if (i + 1) % step == 0)
    if "expert_layer_period" in text:
        period = max(1, text.int("expert_layer_period"))
        offset = text.int("expert_layer_offset", default=0)
        return tuple(i for i in range(layers) if i % period == offset)
    first = text.int("first_k_dense_replace", "num_dense_layers", default=0)
    step = max(1, text.int("decoder_sparse_step", "moe_layer_freq", default=1))
    dense = set(text.list("mlp_only_layers")) if isinstance(text.raw.get("mlp_only_layers"), list) else set()
    shift = 1 if "decoder_sparse_step" in text else 0
    return tuple(i for i in range(first, layers) if i not in dense and (i + shift) % step == 0)


def others(layers: int, taken: Sequence[int]) -> tuple[int, ...]:
    """The layers that are not in ``taken``."""
    gone = set(taken)
    return tuple(i for i in range(layers) if i not in gone)


def layers_of_type(text: Fields, layers: int, *kinds: str) -> tuple[int, ...]:
    """Layers whose entry in ``layer_types`` is one of ``kinds``; none without the field."""
    listed = text.raw.get("layer_types")
    if not isinstance(listed, list):
        return ()
    return tuple(i for i, kind in enumerate(listed[:layers]) if kind in kinds)
