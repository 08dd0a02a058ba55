"""Gemma 3n and Gemma 4, whose layers differ from each other in width, heads and shared keys."""

from __future__ import annotations

from dataclasses import replace

from kvroom.models.fields import Fields
from kvroom.models.weights.common import Dims, dims_of, layers_of_type, others
from kvroom.models.weights.dense import LLAMA, SANDWICH, ends
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import Part, Place, Shard


def gemma4(stack: Stack, text: Fields, _architecture: str) -> None:
    """Gemma 4: wider heads in full layers, keys that are values, per-layer embeddings, optional experts."""
    dims = dims_of(text)
    root, hidden = "model.", dims.hidden
    ends(stack, root, LLAMA, dims)
    full = layers_of_type(text, dims.layers, "full_attention")
    shared_from = dims.layers - text.int("num_kv_shared_layers", default=0)
    equal = text.bool("attention_k_eq_v")
    for layers, is_full in ((full, True), (others(dims.layers, full), False)):
        head = text.int("global_head_dim", default=dims.head) if is_full else dims.head
        kv = text.int("num_global_key_value_heads", default=dims.kv_heads) if is_full and equal else dims.kv_heads
        own = tuple(i for i in layers if i < shared_from)
        tied_kv = equal and is_full
        view = stack.at(f"{root}layers.N.", own)
        view.attention("self_attn.", hidden, dims.heads, kv, head, head_v=head, qk_norm=head)
        if tied_kv:  # the checkpoint has no v_proj: vLLM loads k_proj twice
            repeated = tuple(stack.tensors[-4].out) if own else ()
            _uncount_value(stack, repeated, kv * head, own)
        reuse = tuple(i for i in layers if i >= shared_from)
        user = stack.at(f"{root}layers.N.self_attn.", reuse, part=Part.ATTENTION)
        user.column("q_proj", dims.heads * head, hidden)
        user.row("o_proj", hidden, dims.heads * head)
        user.norm("q_norm", head)
    every = stack.at(f"{root}layers.N.", dims.every)
    every.norms(SANDWICH, hidden)
    every.add("layer_scalar", 1, 1, counted=False, part=Part.BUFFERS)
    double = text.bool("use_double_wide_mlp")
    wide = tuple(i for i in dims.every if double and i >= shared_from)
    stack.at(f"{root}layers.N.", others(dims.layers, wide)).mlp("mlp.", hidden, dims.intermediate)
    stack.at(f"{root}layers.N.", wide).mlp("mlp.", hidden, 2 * dims.intermediate)
    if text.bool("enable_moe_block"):
        count, width = text.int("num_experts", low=1), text.int("moe_intermediate_size", low=1)
        every.norms(("post_feedforward_layernorm_1", "post_feedforward_layernorm_2"), hidden)
        every.norms(("pre_feedforward_layernorm_2", "router.scale"), hidden)
        every.norm("router.per_expert_scale", count)
        every.router("router.proj", hidden, count)
        every.experts("experts.", hidden, width, count)
    per_layer_embeddings(stack, root, text, dims.layers, hidden)


def _uncount_value(stack: Stack, repeated: tuple[int, ...], size: int, layers: tuple[int, ...]) -> None:
    """Splits off the value rows of a qkv weight as a copy that the checkpoint does not hold."""
    if not repeated:
        return
    index = next(i for i in range(len(stack.tensors) - 1, -1, -1) if stack.tensors[i].path.endswith("qkv_proj"))
    qkv = stack.tensors[index]
    stack.tensors[index] = replace(qkv, out=qkv.out[:2], units=qkv.units[:2])
    stack.tensors.insert(
        index + 1,
        replace(qkv, path=qkv.path + ".v", out=(size,), units=qkv.units[2:], counted=False, layers=layers),
    )


def per_layer_embeddings(stack: Stack, root: str, text: Fields, layers: int, hidden: int) -> None:
    """The per-layer input embeddings of Gemma 3n and 4."""
    width = text.int("hidden_size_per_layer_input", default=0)
    if not width:
        return
    vocab = text.int("vocab_size_per_layer_input", "vocab_size", low=1)
    first = stack.at(root, part=Part.EMBEDDING, place=Place.FIRST)
    first.add("embed_tokens_per_layer", vocab, layers * width, Shard.VOCAB)
    shared = stack.at(root, place=Place.FIRST)
    shared.column("per_layer_model_projection", layers * width, hidden)
    shared.norm("per_layer_projection_norm", width)
    every = stack.at(f"{root}layers.N.", range(layers), part=Part.MLP)
    every.linear("per_layer_input_gate", width, hidden)
    every.linear("per_layer_projection", hidden, width)
    every.norm("post_per_layer_input_norm", hidden)


def shared_keys(view: Stack, dims: Dims) -> None:
    """Attention that reuses an earlier layer's keys: vLLM loads its own ones all the same."""
    view.column("q_proj", dims.heads * dims.head, dims.hidden)
    view.row("o_proj", dims.hidden, dims.heads * dims.head)
    view.norm("q_norm", dims.head)
    view.add(
        "kv_proj",
        (dims.kv_heads * dims.head,) * 2,
        dims.hidden,
        Shard.COLUMN,
        units=(dims.kv_heads,) * 2,
        quantisable=True,
        counted=False,
    )
    view.add("k_norm", dims.head, counted=False)


def gemma3n(stack: Stack, text: Fields, _architecture: str) -> None:
    """Gemma 3n: alternating updates (AltUp), LAuReL, per-layer embeddings, shared keys and values."""
    dims = dims_of(text)
    root, hidden = "model.", dims.hidden
    ends(stack, root, LLAMA, dims)
    view = stack.at(f"{root}layers.N.", dims.every)
    own = dims.layers - text.int("num_kv_shared_layers", default=0)
    stack.at(f"{root}layers.N.", range(own)).attention(
        "self_attn.", hidden, dims.heads, dims.kv_heads, dims.head, qk_norm=dims.head
    )
    shared_keys(stack.at(f"{root}layers.N.self_attn.", range(own, dims.layers), part=Part.ATTENTION), dims)
    view.norms(SANDWICH, hidden)
    widths = text.raw.get("intermediate_size")
    each = [int(w) for w in widths] if isinstance(widths, list) else [dims.intermediate] * dims.layers
    for width in sorted(set(each[: dims.layers])):
        layers = tuple(i for i, w in enumerate(each[: dims.layers]) if w == width)
        stack.at(f"{root}layers.N.", layers).mlp("mlp.", hidden, width)
    inputs = text.int("altup_num_inputs", default=4)
    alt = view.inside("altup.", Part.OTHER)
    alt.linear("modality_router", inputs, hidden, quantisable=False)
    alt.norm("router_norm", hidden)
    alt.linear("prediction_coefs", inputs**2, inputs, quantisable=False)
    alt.linear("correction_coefs", inputs, inputs, quantisable=False)
    alt.add("correct_output_scale", hidden)
    rank = text.int("laurel_rank", default=64)
    laurel = view.inside("laurel.", Part.MLP)
    laurel.linear("linear_left", rank, hidden)
    laurel.linear("linear_right", hidden, rank)
    laurel.norm("post_laurel_norm", hidden)
    ends_view = stack.at(root, place=Place.FIRST, copies=inputs - 1)
    ends_view.column("altup_projections", hidden, hidden)
    last = stack.at(root, place=Place.LAST, copies=inputs - 1)
    last.column("altup_unembed_projections", hidden, hidden)
    per_layer_embeddings(stack, root, text, dims.layers, hidden)
