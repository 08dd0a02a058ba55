"""Decoders of one kind of layer: attention, feed-forward, norms, told apart by a few switches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.models.fields import Fields
from kvroom.models.weights.common import Dims, dims_of
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import Place

PRE = ("input_layernorm", "post_attention_layernorm")
POST = ("post_attention_layernorm", "post_feedforward_layernorm")
SANDWICH = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


@dataclass(frozen=True, slots=True)
class Style:
    """How a decoder departs from Llama's layer. None for a bias: the config's own field decides."""

    norms: tuple[str, ...] = PRE
    norm_bias: bool = False
    qkv_bias: bool | None = None
    out_bias: bool | None = None
    mlp_bias: bool | None = None
    qk_norm: str = ""
    """``head``: over one head; ``full``: over all heads at once."""
    gated: bool = True
    head_bias: bool = False
    final_norm: bool = True


LLAMA = Style()
STYLES: dict[str, Style] = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA,
    "Ministral3ForCausalLM": LLAMA,
    "MistralModel": LLAMA,
    "LlamaModel": LLAMA,
    "InternLM2ForCausalLM": LLAMA,
    "InternLM3ForCausalLM": LLAMA,
    "InternLMForCausalLM": LLAMA,
    "YiForCausalLM": LLAMA,
    "AquilaForCausalLM": LLAMA,
    "BaichuanForCausalLM": LLAMA,
    "BaiChuanForCausalLM": LLAMA,
    "XverseForCausalLM": LLAMA,
    "Phi3ForCausalLM": LLAMA,
    "GraniteForCausalLM": LLAMA,
    "SmolLM3ForCausalLM": LLAMA,
    "ExaoneForCausalLM": LLAMA,
    "CwmForCausalLM": LLAMA,
    "MiniCPMForCausalLM": LLAMA,
    "OrionForCausalLM": Style(norm_bias=True),
    "Ernie4_5ForCausalLM": LLAMA,
    "TeleChat2ForCausalLM": LLAMA,
    "SolarForCausalLM": LLAMA,
    "FalconMambaForCausalLM": LLAMA,
    "Qwen2ForCausalLM": Style(qkv_bias=True, out_bias=False),
    "Qwen2Model": Style(qkv_bias=True, out_bias=False),
    "QWenLMHeadModel": Style(qkv_bias=True, out_bias=False),
    "Qwen3ForCausalLM": Style(qk_norm="head"),
    "Qwen3Model": Style(qk_norm="head"),
    "HunYuanDenseV1ForCausalLM": Style(qk_norm="head"),
    "MiMoForCausalLM": Style(qkv_bias=True, out_bias=False),
    "SeedOssForCausalLM": LLAMA,
    "CohereForCausalLM": Style(norms=("input_layernorm",)),
    "Cohere2ForCausalLM": Style(norms=("input_layernorm",)),
    "Exaone4ForCausalLM": Style(norms=POST, qk_norm="head"),
    "OlmoForCausalLM": Style(norms=(), final_norm=False),
    "Olmo2ForCausalLM": Style(norms=POST, qk_norm="full"),
    "Olmo3ForCausalLM": Style(norms=POST, qk_norm="full"),
    "Starcoder2ForCausalLM": Style(norm_bias=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True),
    "StableLmForCausalLM": Style(norm_bias=True),
    "StableLMEpochForCausalLM": Style(norm_bias=True),
    "GlmForCausalLM": Style(qkv_bias=True, out_bias=False),
    "Glm4ForCausalLM": Style(
        norms=(
            "input_layernorm",
            "post_self_attn_layernorm",
            "post_attention_layernorm",
            "post_mlp_layernorm",
        ),
        qkv_bias=True,
        out_bias=False,
    ),
    "ChatGLMModel": Style(qkv_bias=True, out_bias=False),
    "ChatGLMForConditionalGeneration": Style(qkv_bias=True, out_bias=False),
    "Jais2ForCausalLM": Style(norm_bias=True, gated=False),
    "NemotronForCausalLM": Style(norm_bias=True, gated=False),
    "ArceeForCausalLM": Style(gated=False),
    "ApertusForCausalLM": Style(gated=False, qk_norm="head"),
    "GemmaForCausalLM": LLAMA,
    "Gemma2ForCausalLM": Style(norms=SANDWICH),
    "Gemma3ForCausalLM": Style(norms=SANDWICH, qk_norm="head"),
    "PhiForCausalLM": Style(
        norms=("input_layernorm",),
        norm_bias=True,
        gated=False,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        head_bias=True,
    ),
    "GPTNeoXForCausalLM": Style(norm_bias=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True),
}
"""Architectures that differ from each other by these switches only."""
HEADLESS = frozenset({"MistralModel", "LlamaModel", "Qwen2Model", "Qwen3Model"})
"""Embedding models, which are served without an output head."""


def biases(style: Style, text: Fields) -> tuple[bool, bool, bool]:
    """Whether qkv, output and feed-forward projections have biases."""
    general = text.bool("attention_bias", "use_bias", "bias", "use_qkv_bias")
    out = text.bool("attention_out_bias", "attention_bias", "use_bias", "bias")
    mlp = text.bool("mlp_bias", "use_bias")
    return (
        general if style.qkv_bias is None else style.qkv_bias,
        out if style.out_bias is None else style.out_bias,
        mlp if style.mlp_bias is None else style.mlp_bias,
    )


def attention_layers(
    stack: Stack, root: str, text: Fields, style: Style, dims: Dims, layers: Sequence[int] | None = None
) -> None:
    """Attention and norms of ``layers`` (all by default) below ``root``."""
    qkv_bias, out_bias, _ = biases(style, text)
    view = stack.at(f"{root}layers.N.", dims.every if layers is None else layers)
    head, kv = dims.head, dims.kv_heads
    qk_norm = {"head": (head, head), "full": (dims.heads * head, kv * head)}.get(style.qk_norm, (0, 0))
    if text.bool("use_qk_norm", "qk_layernorm") and not style.qk_norm:
        qk_norm = (dims.heads * head, kv * head) if "Cohere" in style_name(text) else (head, head)
    view.attention("self_attn.", dims.hidden, dims.heads, kv, head, bias=qkv_bias, out_bias=out_bias, qk_norm=qk_norm)
    view.norms(style.norms, dims.hidden, bias=style.norm_bias)


def style_name(text: Fields) -> str:
    """The first architecture that the config names, or nothing."""
    names = text.raw.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def ends(stack: Stack, root: str, style: Style, dims: Dims, *, head: bool = True, lm_head: str = "lm_head") -> None:
    """Embedding, final norm and output head."""
    stack.embedding(f"{root}embed_tokens", dims.vocab, dims.hidden)
    if style.final_norm:
        stack.at(root, place=Place.LAST).norm("norm", dims.hidden, bias=style.norm_bias)
    if head:
        stack.head(lm_head, dims.vocab, dims.hidden, tied=dims.tied, bias=style.head_bias)


def dense(stack: Stack, text: Fields, architecture: str) -> None:
    """Lists a decoder of the table."""
    style = STYLES[architecture]
    dims = dims_of(text)
    _, _, mlp_bias = biases(style, text)
    ends(stack, "model.", style, dims, head=architecture not in HEADLESS)
    attention_layers(stack, "model.", text, style, dims)
    stack.at("model.layers.N.", dims.every).mlp(
        "mlp.", dims.hidden, dims.intermediate, gated=style.gated, bias=mlp_bias
    )
