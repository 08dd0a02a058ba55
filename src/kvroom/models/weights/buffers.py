"""Buffers that count as loaded: rotary tables above all, which very long contexts make large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvroom.models.fields import Fields
from kvroom.models.weights.common import layers_of_type
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import Part, Place

NO_ROPE = frozenset(
    {
        "JambaForCausalLM",
        "NemotronHForCausalLM",
        "MambaForCausalLM",
        "Mamba2ForCausalLM",
        "FalconMambaForCausalLM",
        "OPTForCausalLM",
        "GPT2LMHeadModel",
        "GPTBigCodeForCausalLM",
        "BloomForCausalLM",
        "BertModel",
        "BertEmbeddingModel",
        "RobertaModel",
        "XLMRobertaModel",
        "WhisperForConditionalGeneration",
        "KimiLinearForCausalLM",
    }
)
"""Architectures without rotary positions."""
HALF = frozenset({"ChatGLMModel", "ChatGLMForConditionalGeneration"})
"""Architectures that rotate half of each head without saying so."""
MAX_ROWS = 1 << 28
"""Longer tables are the sign of a damaged config; they are cut here."""
TOWER_ROWS = 8192
"""Rows of the rotary table of Qwen's towers (models/qwen2_vl.py: the rotary embedding's max_position)."""


@dataclass(frozen=True, slots=True)
class Table:
    """One rotary table; tables of layers of another ``kind`` have parameters of their own."""

    kind: str
    rows: int
    width: int


def buffers_of(stack: Stack, text: Fields, architecture: str, vision: Fields | None) -> None:
    """Adds the rotary tables of the language model and of its tower, and the scales of attention layers."""
    view = stack.at("", part=Part.BUFFERS, place=Place.EVERY)
    dtype = "float32" if architecture == "GptOssForCausalLM" else None
    for table in [] if architecture in NO_ROPE else rotary_tables(text, architecture):
        view.add(f"rotary.{table.kind}", min(table.rows, MAX_ROWS), table.width, counted=False, dtype=dtype)
    if vision is not None:
        tower_buffers(view, vision)
        levels = vision.list("deepstack_visual_indexes")
        view.add("tokens.deepstack", len(levels) * text.int("hidden_size", default=0), 1, counted=False)
    if "index_topk" in text:  # one buffer of chosen positions, shared by the layers
        view.add("tokens.topk_indices", text.int("index_topk"), 1, counted=False, dtype="int32")
    owners = [t for t in stack.tensors if t.part is Part.ATTENTION and t.path.endswith(("o_proj", "out_proj", "Wo"))]
    for layers in {tuple(t.layers) for t in owners if t.layers}:
        # four scalars (query, key, value, probability scales) beside each attention layer
        scales = stack.at("model.layers.N.attn.", layers, part=Part.BUFFERS, copies=4)
        scales.add("scale", 1, 1, counted=False, dtype="float32")


def rotary_tables(text: Fields, architecture: str) -> tuple[Table, ...]:
    """The rotary tables that vLLM builds: one for each set of rope parameters.

    Mirrors layers/rotary_embedding/__init__.py: get_rope. Models with two kinds of attention layers have
    two tables; the one named ``mrope`` is multiplied by the release's factor for multimodal positions.
    """
    if text.str("position_embedding_type", default="rope") in ("nope", "alibi") or text.bool("alibi"):
        return ()
    scaling = _mapping(text, "rope_parameters") or _mapping(text, "rope_scaling")
    position = text.int("max_position_embeddings", "model_max_length", "seq_length", "n_positions", default=8192)
    if "Cohere" in architecture:
        position = text.int("model_max_length", default=position)
    head = _head_size(text)
    nested = [key for key in ("sliding_attention", "full_attention") if isinstance(scaling.get(key), Mapping)]
    if nested:
        tables = []
        for key in nested:
            if layers_of_type(text, 2000, key) or not text.list("layer_types"):
                size = text.int("global_head_dim", default=head) if key == "full_attention" else head
                own = scaling[key]
                whole = own.get("rope_type") == "proportional"
                tables.append(Table(key, _rows(own, position, text), size if whole else _width(size, own, text)))
        return tuple(tables)
    width = head // 2 if architecture in HALF else _width(head, scaling, text)
    main = Table("mrope" if "mrope_section" in scaling else "full", _rows(scaling, position, text), width)
    if "Gemma3" in architecture or "rope_local_base_freq" in text:
        return (Table("local", position, width), main)
    if "swa_rope_theta" in text:
        return (Table("local", position, width), main)
    return (main,)


def _mapping(text: Fields, name: str) -> Mapping[str, Any]:
    value = text.raw.get(name)
    return value if isinstance(value, Mapping) else {}


def _head_size(text: Fields) -> int:
    """The rotated part's width before partial rotation: the rope part of latent attention, or the head."""
    if "kv_lora_rank" in text or "qk_rope_head_dim" in text:
        return text.int("qk_rope_head_dim", default=64)
    given = text.maybe_int("head_dim", "kv_channels", low=1)
    heads = text.int("num_attention_heads", "n_head", "n_heads", "num_heads", default=1, low=1)
    return given or text.int("hidden_size", "n_embd", "d_model", default=heads) // heads


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def _rows(scaling: Mapping[str, Any], position: int, text: Fields) -> int:
    """Rows of the table: scaled kinds are as long as what they scale to."""
    stated = text.int("original_max_position_embeddings", default=position)
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    factor = min(max(_number(scaling.get("factor"), 1.0), 1.0), 1e6)
    original = int(min(_number(scaling.get("original_max_position_embeddings"), stated), MAX_ROWS))
    if kind in ("yarn", "deepseek_yarn"):
        return int(original * factor)
    if kind in ("linear", "dynamic", "ntk"):
        return int(position * factor)
    if kind in ("longrope", "su"):
        return position + original
    return position


def _width(head: int, scaling: Mapping[str, Any], text: Fields) -> int:
    """Columns of the table: cosine and sine of half of the rotated part of a head."""
    if "rotary_dim" in text and "kv_lora_rank" not in text:
        return text.int("rotary_dim", low=1)
    share = _number(scaling.get("partial_rotary_factor"), 0.0) or text.float(
        "partial_rotary_factor", "rotary_pct", "rope_pct", default=1.0
    )
    if "qk_rope_head_dim" in text:
        share = 1.0
    return max(2, int(head * min(max(share, 0.0), 1.0)) // 2 * 2)


def tower_buffers(view: Stack, vision: Fields) -> None:
    """The rotary table or the position numbers of a vision tower."""
    kind = vision.str("model_type")
    hidden = vision.int("embed_dim", "hidden_size", "vt_hidden_size", default=0)
    heads = vision.int("num_heads", "num_attention_heads", "vt_num_attention_heads", default=1, low=1)
    patches = (vision.int("image_size", default=224) // vision.int("patch_size", default=14, low=1)) ** 2
    if "depth" in vision and "spatial_merge_size" in vision:
        view.add("tower.rotary", TOWER_ROWS, hidden // heads // 2, counted=False)
    elif kind.startswith("siglip_"):
        view.add("tower.position_ids", 2 * patches, 1, counted=False, dtype="int32")
    elif kind.startswith("clip_"):
        view.add("tower.position_ids", 2 * (patches + 1), 1, counted=False, dtype="int32")
    elif kind.startswith("llama4"):
        view.add("tower.frequencies", 2 * (patches + 1) * (hidden // heads // 2), 1, counted=False, dtype="float32")
