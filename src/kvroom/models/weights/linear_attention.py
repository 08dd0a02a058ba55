"""Decoders with linear attention or short convolutions: Qwen3-Next and 3.5, Kimi-Linear and K3, LFM2."""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.models.fields import Fields
from kvroom.models.weights.common import Dims, dims_of, layers_of_type, others, sparse_layers
from kvroom.models.weights.dense import LLAMA, Style, ends
from kvroom.models.weights.mla import latent_attention
from kvroom.models.weights.moe import COUNT, Moe, experts_in, final_norm, shared_width
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import Part, Place, Shard


def gated_delta_net(view: Stack, hidden: int, text: Fields) -> None:
    """A Gated DeltaNet mixer of Qwen3-Next and Qwen3.5."""
    k_heads, k_size = text.int("linear_num_key_heads", low=1), text.int("linear_key_head_dim", low=1)
    v_heads, v_size = text.int("linear_num_value_heads", low=1), text.int("linear_value_head_dim", low=1)
    key, value = k_heads * k_size, v_heads * v_size
    kernel = text.int("linear_conv_kernel_dim", default=4)
    view.add("dt_bias", v_heads, 1, Shard.COLUMN)
    view.add("A_log", v_heads, 1, Shard.COLUMN, dtype="float32")
    view.add("conv1d", (key, key, value), kernel, Shard.COLUMN)
    view.column("in_proj_qkvz", (key, key, value, value), hidden)
    view.column("in_proj_ba", (v_heads, v_heads), hidden)
    view.norm("norm", v_size)
    view.row("out_proj", hidden, value)


def qwen_next(stack: Stack, text: Fields, _architecture: str) -> None:
    """Qwen3-Next, Qwen3.5 and 3.6: Gated DeltaNet with gated full attention every fourth layer."""
    dims = dims_of(text)
    ends(stack, "model.", LLAMA, dims)
    full = layers_of_type(text, dims.layers, "full_attention")
    if not full:
        step = text.int("full_attention_interval", default=4, low=1)
        full = tuple(range(step - 1, dims.layers, step))
    qwen_next_attention(stack, "model.", text, dims, full)
    mixers = stack.at("model.layers.N.linear_attn.", others(dims.layers, full), part=Part.STATE)
    gated_delta_net(mixers, dims.hidden, text)
    stack.at("model.layers.N.", dims.every).norms(LLAMA.norms, dims.hidden)
    qwen_next_mlp(stack, "model.", text, dims, dims.every)


def qwen_next_attention(stack: Stack, root: str, text: Fields, dims: Dims, layers: Sequence[int]) -> None:
    """The full attention of Qwen3-Next, whose query carries an output gate."""
    stack.at(f"{root}layers.N.", layers).attention(
        "self_attn.",
        dims.hidden,
        dims.heads,
        dims.kv_heads,
        dims.head,
        query_gate=text.bool("attn_output_gate", default=True),
        bias=text.bool("attention_bias"),
        qk_norm=dims.head,
    )


def qwen_next_mlp(stack: Stack, root: str, text: Fields, dims: Dims, layers: Sequence[int]) -> None:
    """Experts with a gated shared one, or a dense feed-forward in the models without experts."""
    if text.int(*COUNT, default=0) == 0:
        stack.at(f"{root}layers.N.", layers).mlp("mlp.", dims.hidden, dims.intermediate)
        return
    moe = Moe(shared="shared_expert.", shared_gate=True)
    sparse = set(sparse_layers(text, dims.layers)) if layers == dims.every else set(layers)
    experts_in(stack, root, text, moe, dims, tuple(i for i in layers if i in sparse))
    dense = tuple(i for i in layers if i not in sparse)
    stack.at(f"{root}layers.N.", dense).mlp("mlp.", dims.hidden, dims.intermediate)


def lfm2(stack: Stack, text: Fields, architecture: str) -> None:
    """LFM2: short convolutions with grouped-query attention in between."""
    dims = dims_of(text)
    ends(stack, "model.", Style(final_norm=False), dims)
    final_norm(stack, "model.embedding_norm", dims.hidden)
    full = layers_of_type(text, dims.layers, "full_attention")
    if not full:
        full = tuple(i for i in text.list("full_attn_idxs") if isinstance(i, int) and i < dims.layers)
    stack.at("model.layers.N.", full).attention(
        "self_attn.",
        dims.hidden,
        dims.heads,
        dims.kv_heads,
        dims.head,
        qk_norm=dims.head,
        out_name="out_proj",
    )
    view = stack.at("model.layers.N.short_conv.", others(dims.layers, full), part=Part.STATE)
    width, bias = text.int("conv_dim", default=dims.hidden), text.bool("conv_bias")
    view.add("conv", width, text.int("conv_L_cache", default=3), Shard.COLUMN)
    if bias:
        view.add("conv.bias", width, 1, Shard.COLUMN)
    view.column("in_proj", (width, width, width), dims.hidden, bias=bias)
    view.row("out_proj", dims.hidden, width, bias=bias)
    stack.at("model.layers.N.", dims.every).norms(("operator_norm", "ffn_norm"), dims.hidden)
    inner = dims.intermediate if "intermediate_size" in text else text.int("block_ff_dim", default=dims.intermediate)
    if text.bool("block_auto_adjust_ff_dim", default=architecture.startswith("Lfm2For")):
        inner = int(2 * inner / 3)
        inner = int(text.float("block_ffn_dim_multiplier", default=1.0) * inner)
        multiple = text.int("block_multiple_of", default=256, low=1)
        inner = -(-inner // multiple) * multiple
    sparse = sparse_layers(text, dims.layers) if text.int(*COUNT, default=0) else ()
    stack.at("model.layers.N.", others(dims.layers, sparse)).mlp(
        "feed_forward.", dims.hidden, inner, up="w13", down="w2"
    )
    if sparse:
        bias_name = "expert_bias" if text.bool("use_expert_bias", default=True) else None
        experts_in(stack, "model.", text, Moe(block="feed_forward.", correction=bias_name), dims, sparse)


def kimi_linear(stack: Stack, text: Fields, _architecture: str) -> None:
    """Kimi-Linear and Kimi-K3: Kimi Delta Attention with latent attention in between, routed experts."""
    dims = dims_of(text)
    ends(stack, "model.", LLAMA, dims)
    linear = text.sub("linear_attn_config")
    full = layers_of_type(text, dims.layers, "full_attention")
    if linear is not None:
        full = tuple(i - 1 for i in linear.list("full_attn_layers") if isinstance(i, int) and 0 < i <= dims.layers)
    latent_attention(stack, "model.", text, dims, full)
    if text.bool("mla_use_output_gate"):
        view = stack.at("model.layers.N.self_attn.", full, part=Part.ATTENTION)
        view.column("g_proj", dims.heads * text.int("v_head_dim", default=128), dims.hidden)
    kda = stack.at("model.layers.N.self_attn.", others(dims.layers, full), part=Part.STATE)
    source = linear if linear is not None else text
    heads = source.int("num_heads", "linear_num_heads", default=dims.heads)
    head = source.int("head_dim", default=128) if linear is not None else text.int("linear_head_dim", default=128)
    kernel = source.int("short_conv_kernel_size", "linear_conv_kernel_dim", default=4)
    kimi_delta(kda, dims.hidden, heads, head, kernel, full_gate=source.bool("use_full_rank_gate"))
    every = stack.at("model.layers.N.", dims.every)
    every.norms(LLAMA.norms, dims.hidden)
    if "attn_res_block_size" in text:
        every.norms(("self_attention_res_norm", "mlp_res_norm"), dims.hidden)
        every.norms(("self_attention_res_proj", "mlp_res_proj"), dims.hidden)
        stack.at("model.", place=Place.LAST).norms(("output_attn_res_norm", "output_attn_res_proj"), dims.hidden)
    kimi_experts(stack, text, dims)


def kimi_delta(view: Stack, hidden: int, heads: int, head: int, kernel: int, *, full_gate: bool) -> None:
    """One Kimi Delta Attention mixer (models/kimi_k3/nvidia/kda.py)."""
    width = heads * head
    view.column("qkv_proj", (width, width, width), hidden)
    view.add("conv1d", (width, width, width), kernel, Shard.COLUMN, dtype="float32")
    view.column("b_proj", heads, hidden)
    view.linear("f_a_proj", head, hidden)
    view.column("f_b_proj", width, head)
    if full_gate:
        view.column("g_proj", width, hidden)
    else:
        view.linear("g_a_proj", head, hidden)
        view.column("g_b_proj", width, head)
    view.add("dt_bias", width, 1, Shard.COLUMN, dtype="float32")
    view.add("A_log", heads, 1, Shard.COLUMN, dtype="float32")
    view.norm("o_norm", head)
    view.row("o_proj", hidden, width)


def kimi_experts(stack: Stack, text: Fields, dims: Dims) -> None:
    """Kimi's experts, in Kimi-K3 in a narrower latent space."""
    sparse = sparse_layers(text, dims.layers)
    latent = text.int("routed_expert_hidden_size", default=0)
    moe = Moe(shared="shared_experts.", correction="gate.e_score_correction_bias")
    if not latent:
        experts_in(stack, "model.", text, moe, dims, sparse)
    else:
        view = stack.at("model.layers.N.mlp.", sparse)
        count, width = text.int(*COUNT, low=1), text.int("moe_intermediate_size", low=1)
        view.router("gate", dims.hidden, count, correction=moe.correction)
        inner = view.inside("", Part.EXPERTS)
        inner.linear("routed_expert_down_proj", latent, dims.hidden, quantisable=False)
        inner.linear("routed_expert_up_proj", dims.hidden, latent, quantisable=False)
        if text.bool("latent_moe_use_norm"):
            inner.norm("routed_expert_norm", latent)
        view.experts("experts.", latent, width, count)
        view.mlp("shared_experts.", dims.hidden, shared_width(text, width))
    stack.at("model.layers.N.", others(dims.layers, sparse)).mlp("mlp.", dims.hidden, dims.intermediate)
