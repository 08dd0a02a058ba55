"""The blocks of vision towers and their projectors, which every pipeline stage holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvroom.models.fields import Fields
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import GUESSED, Part, Place

Tower = Callable[[Stack, Fields, Fields, Fields], None]
"""Lists a tower: (stack, whole config, vision config, text config)."""


def at(stack: Stack, prefix: str, copies: int = 1) -> Stack:
    """A view for the weights of a tower below ``prefix``."""
    return stack.at(prefix, part=Part.VISION, place=Place.EVERY, copies=copies)


def block(
    view: Stack,
    hidden: int,
    heads: int,
    inner: int,
    *,
    bias: bool = True,
    attn_bias: bool | None = None,
    gated: bool = False,
    norm_bias: bool = True,
    up: str = "mlp.fc1",
    down: str = "mlp.fc2",
) -> None:
    """One encoder block: attention, feed-forward, two norms."""
    with_bias = bias if attn_bias is None else attn_bias
    view.column("attn.qkv", (hidden, hidden, hidden), hidden, bias=with_bias, units=(heads, heads, heads))
    view.row("attn.proj", hidden, hidden, bias=with_bias)
    view.column(up, (inner, inner) if gated else inner, hidden, bias=bias)
    view.row(down, hidden, inner, bias=bias)
    view.norms(("norm1", "norm2"), hidden, bias=norm_bias)


def siglip(stack: Stack, vision: Fields, root: str) -> int:
    """A SigLIP tower; returns its width."""
    hidden, layers = vision.int("hidden_size", low=1), vision.int("num_hidden_layers", low=1)
    patch = vision.int("patch_size", default=14)
    top = at(stack, root)
    top.linear("embeddings.patch_embedding", hidden, 3 * patch * patch, bias=True, quantisable=False)
    positions = vision.int("num_patches", default=(vision.int("image_size", default=224) // patch) ** 2)
    top.add("embeddings.position_embedding", positions, hidden)
    heads = vision.int("num_attention_heads", low=1)
    view = at(stack, f"{root}encoder.layers.N.", layers)
    block(view, hidden, heads, vision.int("intermediate_size", low=1))
    top.norm("post_layernorm", hidden, bias=True)
    return hidden


def clip(stack: Stack, vision: Fields, root: str, layers: int) -> int:
    """A CLIP tower of ``layers`` blocks; returns its width."""
    hidden, patch = vision.int("hidden_size", low=1), vision.int("patch_size", default=14)
    top = at(stack, root)
    top.add("embeddings.class_embedding", hidden)
    top.add("embeddings.patch_embedding", hidden, 3 * patch * patch)
    top.add("embeddings.position_embedding", (vision.int("image_size", default=224) // patch) ** 2 + 1, hidden)
    top.norm("pre_layrnorm", hidden, bias=True)
    view = at(stack, f"{root}encoder.layers.N.", layers)
    block(view, hidden, vision.int("num_attention_heads", low=1), vision.int("intermediate_size", low=1))
    return hidden


def never_quantised(stack: Stack, start: int) -> None:
    """Marks what was added since ``start`` as built without a quantisation config."""
    for i in range(start, len(stack.tensors)):
        stack.tensors[i] = replace(stack.tensors[i], quantisable=False)


def skip_loading(stack: Stack, start: int) -> None:
    """Marks what was added since ``start`` as in the checkpoint but not loaded by vLLM."""
    for i in range(start, len(stack.tensors)):
        stack.tensors[i] = replace(stack.tensors[i], path="unused." + stack.tensors[i].path)


def two_layers(stack: Stack, root: str, inp: int, out: int, *, bias: bool = True, inner: int | None = None) -> None:
    """A projector of two linear layers."""
    view = at(stack, root)
    middle = out if inner is None else inner
    view.column("linear_1", middle, inp, bias=bias)
    view.row("linear_2", out, middle, bias=bias)


def generic_tower(stack: Stack, _config: Fields, vision: Fields, text: Fields) -> None:
    """A tower that is not known: a plain ViT of the config's size and two projections."""
    hidden = vision.int("hidden_size", "embed_dim", "vt_hidden_size", "width", default=1024, low=1)
    layers = vision.int("num_hidden_layers", "depth", "vt_num_hidden_layers", "layers", default=24, low=1)
    inner = vision.int("intermediate_size", "vt_intermediate_size", default=4 * hidden)
    heads = vision.int("num_attention_heads", "num_heads", "vt_num_attention_heads", default=1, low=1)
    patch = vision.int("patch_size", default=14)
    at(stack, f"{GUESSED}tower.").add("patch_embed", hidden, 3 * patch * patch)
    block(at(stack, f"{GUESSED}tower.blocks.N.", layers), hidden, heads, inner)
    two_layers(stack, "multi_modal_projector.", hidden, text.int("hidden_size"))
