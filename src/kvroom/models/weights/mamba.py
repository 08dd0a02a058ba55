"""Decoders with Mamba layers: Mamba itself, Jamba, Nemotron-H, Granite 4, Falcon-H1."""

from __future__ import annotations

from kvroom.models.fields import Fields
from kvroom.models.weights.common import MAX_LAYERS, Dims, dims_of, layers_of_type, others, sparse_layers
from kvroom.models.weights.dense import LLAMA, Style, attention_layers, ends
from kvroom.models.weights.moe import COUNT, Moe, experts_in, final_norm
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import Part, Shard


def mamba2(
    view: Stack,
    hidden: int,
    heads: int,
    head: int,
    state: int,
    groups: int,
    kernel: int,
    *,
    conv_bias: bool = True,
    bias: bool = False,
    norm: bool = True,
) -> None:
    """A Mamba-2 mixer (layers/mamba/mamba_mixer2.py): groups are repeated where ranks outnumber them."""
    inner = heads * head
    view.add("A", heads, 1, Shard.COLUMN, dtype="float32")
    view.add("D", heads, 1, Shard.COLUMN)
    view.add("dt_bias", heads, 1, Shard.COLUMN)
    conv, units = (inner, groups * state, groups * state), (heads, groups, groups)
    view.add("conv1d", conv, kernel, Shard.COLUMN, units=units)
    if conv_bias:
        view.add("conv1d.bias", conv, 1, Shard.COLUMN, units=units)
    view.column("in_proj", (inner, *conv, heads), hidden, bias=bias, units=(heads, *units, heads))
    view.row("out_proj", hidden, inner, bias=bias)
    if norm:
        view.add("norm", inner, 1, Shard.COLUMN)


def mamba1(view: Stack, hidden: int, inner: int, state: int, rank: int, kernel: int, text: Fields, pre: str) -> None:
    """A Mamba-1 mixer (layers/mamba/mamba_mixer.py), with the layer norms of Jamba where it is one."""
    bias = text.bool(f"{pre}proj_bias", "use_bias")
    view.add("A", inner, state, Shard.COLUMN, dtype="float32")
    view.add("D", inner, 1, Shard.COLUMN)
    view.add("conv1d", inner, kernel, Shard.COLUMN)
    if text.bool(f"{pre}conv_bias", "use_conv_bias", default=True):
        view.add("conv1d.bias", inner, 1, Shard.COLUMN)
    view.column("in_proj", (inner, inner), hidden, bias=bias)
    view.row("x_proj", rank + 2 * state, inner)
    view.column("dt_proj", inner, rank, bias=True)
    view.row("out_proj", hidden, inner, bias=bias)
    if pre:
        view.norms(("dt_layernorm",), rank)
        view.norms(("b_layernorm", "c_layernorm"), state)


def mamba(stack: Stack, text: Fields, architecture: str) -> None:
    """Pure Mamba-1 and Mamba-2 models."""
    layers = text.int("num_hidden_layers", "n_layer", low=1)
    hidden, vocab = text.int("hidden_size", "d_model", low=1), text.int("vocab_size", low=1)
    multiple = text.int("pad_vocab_size_multiple", default=1, low=1)
    vocab = -(-vocab // multiple) * multiple
    stack.embedding("backbone.embeddings", vocab, hidden)
    view = stack.at("backbone.layers.N.mixer.", range(layers), part=Part.STATE)
    expand = text.int("expand", default=2)
    inner = text.int("intermediate_size", default=expand * hidden)
    state = text.int("state_size", default=128 if "2" in architecture else 16)
    kernel = text.int("conv_kernel", default=4)
    if "2" in architecture:
        head = text.int("head_dim", default=64)
        heads = text.int("num_heads", default=inner // head)
        mamba2(view, hidden, heads, head, state, text.int("n_groups", default=1), kernel)
    else:
        rank = text.int("time_step_rank", default=-(-hidden // 16))
        mamba1(view, hidden, inner, state, rank, kernel, text, "")
    stack.at("backbone.layers.N.", range(layers)).norm("norm", hidden)
    final_norm(stack, "backbone.norm_f", hidden)
    stack.head("lm_head", vocab, hidden, tied=text.bool("tie_word_embeddings", default="2" not in architecture))


def jamba(stack: Stack, text: Fields, _architecture: str) -> None:
    """Jamba: Mamba-1 with attention every so many layers, experts every other."""
    dims = dims_of(text)
    period, offset = text.int("attn_layer_period", default=8, low=1), text.int("attn_layer_offset", default=4)
    attention = tuple(i for i in dims.every if i % period == offset)
    ends(stack, "model.", Style(final_norm=False), dims)
    final_norm(stack, "model.final_layernorm", dims.hidden)
    stack.at("model.layers.N.", attention).attention("", dims.hidden, dims.heads, dims.kv_heads, dims.head)
    view = stack.at("model.layers.N.mamba.", others(dims.layers, attention), part=Part.STATE)
    inner = text.int("mamba_expand", default=2) * dims.hidden
    rank = text.int("mamba_dt_rank", default=-(-dims.hidden // 16))
    state, kernel = text.int("mamba_d_state", default=16), text.int("mamba_d_conv", default=4)
    mamba1(view, dims.hidden, inner, state, rank, kernel, text, "mamba_")
    stack.at("model.layers.N.", dims.every).norms(("input_layernorm", "pre_ff_layernorm"), dims.hidden)
    sparse = sparse_layers(text, dims.layers) if text.int("num_experts", default=1) > 1 else ()
    if sparse:
        experts_in(stack, "model.", text, Moe(block="feed_forward.", gate="router"), dims, sparse)
    stack.at("model.layers.N.", others(dims.layers, sparse)).mlp("feed_forward.", dims.hidden, dims.intermediate)


BLOCK_LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


def hybrid_pattern(text: Fields, prefix: str = "") -> str:
    """Nemotron's layers as letters: M, *, - and E; from the list of block types where that is given."""
    kinds = text.raw.get("mtp_layers_block_type" if prefix else "layers_block_type")
    if isinstance(kinds, list):
        return "".join(BLOCK_LETTERS.get(str(kind), "-") for kind in kinds)
    name = f"{prefix}hybrid_override_pattern"
    value = text.raw.get(name)
    return value if isinstance(value, str) and len(value) <= MAX_LAYERS else text.str(name)


def nemotron_h(stack: Stack, text: Fields, _architecture: str) -> None:
    """Nemotron-H and Nemotron 3: each layer is a Mamba-2 mixer, attention, feed-forward or experts."""
    dims = dims_of(text)
    ends(stack, "model.", Style(final_norm=False), dims)
    final_norm(stack, "model.norm_f", dims.hidden)
    nemotron_layers(stack, text, dims, hybrid_pattern(text), 0)


def nemotron_layers(stack: Stack, text: Fields, dims: Dims, pattern: str, first: int) -> None:
    """The layers of a Nemotron pattern, numbered from ``first``."""

    def at(letter_: str, part: Part) -> Stack:
        numbers = tuple(first + i for i, letter in enumerate(pattern) if letter == letter_)
        return stack.at("model.layers.N.mixer.", numbers, part=part)

    mamba2(
        at("M", Part.STATE),
        dims.hidden,
        text.int("mamba_num_heads", default=1),
        text.int("mamba_head_dim", default=64),
        text.int("ssm_state_size", default=128),
        text.int("n_groups", default=8),
        text.int("conv_kernel", default=4),
        conv_bias=text.bool("use_conv_bias", default=True),
        bias=text.bool("mamba_proj_bias", "use_bias"),
    )
    head = text.int("head_dim", "attention_head_dim", default=dims.head)
    at("*", Part.ATTENTION).attention(
        "", dims.hidden, dims.heads, dims.kv_heads, head, bias=text.bool("attention_bias"), out_bias=False
    )
    at("-", Part.MLP).mlp("", dims.hidden, dims.intermediate, gated=False, up="up_proj", bias=text.bool("mlp_bias"))
    moe = at("E", Part.EXPERTS)
    if moe.layers:
        count, width = text.int(*COUNT, low=1), text.int("moe_intermediate_size", low=1)
        moe.router("gate", dims.hidden, count, correction="gate.e_score_correction_bias")
        latent = text.int("moe_latent_size", default=0)
        moe.experts("experts.", latent or dims.hidden, width, count, gated=False)
        if latent:
            moe.linear("fc1_latent_proj", latent, dims.hidden)
            moe.linear("fc2_latent_proj", dims.hidden, latent)
        shared = text.int("moe_shared_expert_intermediate_size", default=width)
        shared *= text.int("n_shared_experts", default=1)
        moe.mlp("shared_experts.", dims.hidden, shared, gated=False, up="up_proj")
    numbers = tuple(first + i for i in range(len(pattern)))
    stack.at("model.layers.N.", numbers).norm("norm", dims.hidden)


def granite_hybrid(stack: Stack, text: Fields, _architecture: str) -> None:
    """Granite 4 and Bamba-like: Mamba-2 and attention layers, experts and a shared feed-forward."""
    dims = dims_of(text)
    ends(stack, "model.", LLAMA, dims)
    mixers = layers_of_type(text, dims.layers, "mamba")
    attention_layers(stack, "model.", text, Style(norms=()), dims, others(dims.layers, mixers))
    stack.at("model.layers.N.", dims.every).norms(LLAMA.norms, dims.hidden)
    head = text.maybe_int("mamba_d_head", low=1) or 64
    heads = text.int("mamba_n_heads", default=1)
    mamba2(
        stack.at("model.layers.N.mamba.", mixers, part=Part.STATE),
        dims.hidden,
        heads,
        head,
        text.int("mamba_d_state", default=128),
        text.int("mamba_n_groups", default=1),
        text.int("mamba_d_conv", default=4),
        conv_bias=text.bool("mamba_conv_bias", default=True),
        bias=text.bool("mamba_proj_bias"),
    )
    every = stack.at("model.layers.N.", dims.every)
    if text.int(*COUNT, default=0):
        experts_in(stack, "model.", text, Moe(block="block_sparse_moe."), dims, dims.every)
    shared = text.int("shared_intermediate_size", default=0)
    every.mlp("shared_mlp.", dims.hidden, shared, up="input_linear", down="output_linear")


def falcon_h1(stack: Stack, text: Fields, _architecture: str) -> None:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    dims = dims_of(text)
    ends(stack, "model.", Style(final_norm=False), dims)
    final_norm(stack, "model.final_layernorm", dims.hidden)
    attention_layers(stack, "model.", text, Style(norms=("input_layernorm", "pre_ff_layernorm")), dims)
    view = stack.at("model.layers.N.", dims.every)
    view.mlp("feed_forward.", dims.hidden, dims.intermediate, bias=text.bool("mlp_bias"))
    inner = text.int("mamba_d_ssm", default=text.int("mamba_expand", default=2) * dims.hidden)
    heads = text.int("mamba_n_heads", low=1)
    mamba2(
        view.inside("mamba.", Part.STATE),
        dims.hidden,
        heads,
        inner // heads,
        text.int("mamba_d_state", default=128),
        text.int("mamba_n_groups", default=1),
        text.int("mamba_d_conv", default=4),
        conv_bias=text.bool("mamba_conv_bias", default=True),
        bias=text.bool("mamba_proj_bias"),
        norm=text.bool("mamba_rms_norm"),
    )
