"""The multi-token-prediction layers that a checkpoint carries, loaded only when they speculate."""

from __future__ import annotations

from kvroom.errors import BadConfig
from kvroom.models.families.common import MAX_DRAFTS
from kvroom.models.fields import Fields
from kvroom.models.weights.common import Dims, dims_of
from kvroom.models.weights.dense import LLAMA, STYLES, Style, attention_layers, biases
from kvroom.models.weights.linear_attention import qwen_next_attention, qwen_next_mlp
from kvroom.models.weights.mamba import hybrid_pattern, nemotron_layers
from kvroom.models.weights.mla import deepseek_moe, latent_attention, v4_layers
from kvroom.models.weights.moe import COUNT, MOES, Moe, experts_in
from kvroom.models.weights.stack import Stack


def draft_count(text: Fields) -> int:
    """Multi-token-prediction layers that the config declares."""
    count = text.int("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", default=0)
    if count > MAX_DRAFTS:
        raise BadConfig(f"{text.where}: {count} multi-token-prediction layers is more than any model has.")
    return count


def joins(stack: Stack, root: str, layers: range, dims: Dims, names: tuple[str, str, str], norms: int) -> None:
    """The two input norms, the joining projection and closing norms of each draft layer."""
    view = stack.at(f"{root}", layers)
    view.norms(names[:2], dims.hidden)
    view.linear(names[2], dims.hidden, 2 * dims.hidden)
    for i in range(norms):
        view.norm(f"norm{i}", dims.hidden)


def deepseek_draft(stack: Stack, text: Fields, architecture: str) -> None:
    """DeepSeek-V3, V3.2, GLM-4.5 and 5: a whole decoder layer, two norms, a projection, a head's norm."""
    dims = dims_of(text)
    layers = range(dims.layers, dims.layers + draft_count(text))
    joins(stack, "model.layers.N.", layers, dims, ("enorm", "hnorm", "eh_proj"), 1)
    view = stack.at("model.layers.N.", layers)
    if "kv_lora_rank" in text:
        latent_attention(stack, "model.", text, dims, layers)
        moe = deepseek_moe(text, architecture)
    else:
        moe = MOES.get(architecture, Moe())
        attention_layers(stack, "model.", text, _bare(moe.style), dims, layers)
    view.norms(LLAMA.norms, dims.hidden)
    if text.int(*COUNT, default=0):
        experts_in(stack, "model.", text, moe, dims, layers)
    else:
        view.mlp("mlp.", dims.hidden, dims.intermediate)


def _bare(style: Style) -> Style:
    """``style`` without layer norms."""
    return Style((), style.norm_bias, style.qkv_bias, style.out_bias, style.mlp_bias, style.qk_norm, style.gated)


def v4_draft(stack: Stack, text: Fields, _architecture: str) -> None:
    """DeepSeek-V4: as its decoder layers, with two projections instead of a joining one."""
    dims = dims_of(text)
    layers = range(dims.layers, dims.layers + draft_count(text))
    view = stack.at("model.layers.N.", layers)
    view.norms(("enorm", "hnorm", "norm"), dims.hidden)
    view.linear("e_proj", dims.hidden, dims.hidden)
    view.linear("h_proj", dims.hidden, dims.hidden)
    v4_layers(stack, Fields({**text.raw, "num_hash_layers": 0}, text.where), dims, layers)


def qwen_draft(stack: Stack, text: Fields, _architecture: str) -> None:
    """Qwen3-Next and Qwen3.5: one full-attention layer with its feed-forward, joined once."""
    dims = dims_of(text)
    layers = range(dims.layers, dims.layers + draft_count(text))
    joins(
        stack,
        "mtp.",
        range(dims.layers, dims.layers + 1),
        dims,
        ("pre_fc_norm_hidden", "pre_fc_norm_embedding", "fc"),
        1,
    )
    qwen_next_attention(stack, "mtp.", text, dims, layers)
    stack.at("mtp.layers.N.", layers).norms(LLAMA.norms, dims.hidden)
    qwen_next_mlp(stack, "mtp.", text, dims, layers)


def mimo_draft(stack: Stack, text: Fields, architecture: str) -> None:
    """MiMo: dense decoder layers, each joined; MiMo-V2's are windowed."""
    dims = dims_of(text)
    layers = range(dims.layers, dims.layers + draft_count(text))
    joins(
        stack,
        "model.mtp_layers.N.",
        layers,
        dims,
        ("token_layernorm", "hidden_layernorm", "input_proj"),
        1,
    )
    style = STYLES.get(architecture, LLAMA)
    attention_layers(stack, "model.mtp_", text, style, dims, layers)
    stack.at("model.mtp_layers.N.", layers).mlp("mlp.", dims.hidden, dims.intermediate, bias=biases(style, text)[2])


def nemotron_draft(stack: Stack, text: Fields, _architecture: str) -> None:
    """Nemotron 3: attention and experts after a joining projection."""
    dims = dims_of(text)
    pattern = hybrid_pattern(text, "mtp_")
    if not pattern:
        return
    first = range(dims.layers, dims.layers + 1)
    joins(stack, "mtp.layers.N.", first, dims, ("enorm", "hnorm", "eh_proj"), 1)
    nemotron_layers(stack, text, dims, pattern, dims.layers)
