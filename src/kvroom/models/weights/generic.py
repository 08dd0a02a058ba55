"""An architecture that is not known, priced from the fields that all decoders share."""

from __future__ import annotations

from kvroom.models.fields import Fields
from kvroom.models.weights.common import dims_of, others, sparse_layers
from kvroom.models.weights.dense import LLAMA, Style, attention_layers, ends
from kvroom.models.weights.mla import latent_attention
from kvroom.models.weights.moe import COUNT, Moe, experts_in
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import GUESSED

ROOT = f"{GUESSED}model."


def generic(stack: Stack, text: Fields, _architecture: str) -> None:
    """An architecture that is not known: what its attention and feed-forward fields amount to."""
    dims = dims_of(text)
    style = Style(qk_norm="head" if text.bool("use_qk_norm", "qk_norm") else "")
    ends(stack, ROOT, style, dims)
    if "kv_lora_rank" in text:
        latent_attention(stack, ROOT, text, dims, dims.every)
        stack.at(f"{ROOT}layers.N.", dims.every).norms(LLAMA.norms, dims.hidden)
    else:
        attention_layers(stack, ROOT, text, style, dims)
    sparse = sparse_layers(text, dims.layers) if text.int(*COUNT, default=0) > 1 else ()
    if sparse:
        experts_in(stack, ROOT, text, Moe(shared="shared_experts."), dims, sparse)
    stack.at(f"{ROOT}layers.N.", others(dims.layers, sparse)).mlp("mlp.", dims.hidden, dims.intermediate)
