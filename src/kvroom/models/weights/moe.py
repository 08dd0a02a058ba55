"""Decoders whose feed-forward part is routed experts in some layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvroom.models.fields import Fields
from kvroom.models.weights.common import Dims, dims_of, others, sparse_layers
from kvroom.models.weights.dense import LLAMA, SANDWICH, Style, attention_layers, biases, ends
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import Part, Place, Shard

COUNT = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
"""Names of the number of routed experts."""


@dataclass(frozen=True, slots=True)
class Moe:
    """How a family arranges its experts."""

    style: Style = LLAMA
    block: str = "mlp."
    experts: str = "experts."
    gate: str = "gate"
    gate_dtype: str | None = None
    gate_bias: bool = False
    correction: str | None = None
    correction_counted: bool = False
    shared: str = ""
    """Module of the shared experts, which every token passes."""
    shared_gate: bool = False
    expert_bias: bool = False


DEEPSEEK = Moe(shared="shared_experts.", correction="gate.e_score_correction_bias")
MOES: dict[str, Moe] = {
    "MixtralForCausalLM": Moe(block="block_sparse_moe."),
    "Qwen2MoeForCausalLM": Moe(Style(qkv_bias=True, out_bias=False), shared="shared_expert.", shared_gate=True),
    "Qwen3MoeForCausalLM": Moe(Style(qk_norm="head")),
    "PhiMoEForCausalLM": Moe(Style(norm_bias=True, head_bias=True), block="block_sparse_moe."),
    "PhimoeForCausalLM": Moe(Style(norm_bias=True, head_bias=True), block="block_sparse_moe."),
    "OlmoeForCausalLM": Moe(Style(qk_norm="full")),
    "FlexOlmoForCausalLM": Moe(Style(qk_norm="full")),
    "GraniteMoeForCausalLM": Moe(block="block_sparse_moe."),
    "GraniteMoeSharedForCausalLM": Moe(block="block_sparse_moe.", shared="shared_mlp."),
    "DeepseekForCausalLM": Moe(shared="shared_experts."),
    "Glm4MoeForCausalLM": Moe(
        Style(out_bias=False),
        gate_dtype="float32",
        correction="gate.e_score_correction_bias",
        shared="shared_experts.",
    ),
    "SolarOpenForCausalLM": Moe(Style(out_bias=False), shared="shared_experts."),
    "Dots1ForCausalLM": Moe(Style(qk_norm="head"), correction="gate.e_score_correction_bias", shared="shared_experts."),
    "Ernie4_5_MoeForCausalLM": Moe(
        gate_dtype="float32",
        correction="gate.e_score_correction_bias",
        correction_counted=True,
        shared="shared_experts.",
    ),
    "BailingMoeForCausalLM": Moe(shared="shared_experts."),
    "BailingMoeV2ForCausalLM": Moe(Style(qk_norm="head"), correction="gate.expert_bias", shared="shared_experts."),
    "MiniMaxM2ForCausalLM": Moe(
        Style(qk_norm="full"),
        block="block_sparse_moe.",
        gate_dtype="float32",
        correction="e_score_correction_bias",
    ),
    "AfmoeForCausalLM": Moe(Style(norms=SANDWICH, qk_norm="head"), correction="expert_bias", shared="shared_experts."),
    "GptOssForCausalLM": Moe(Style(qkv_bias=True, out_bias=True), gate="router", gate_bias=True, expert_bias=True),
}
"""Mixture-of-experts architectures that differ by these switches only."""


def expert_width(text: Fields, dims: Dims) -> int:
    """Width of one routed expert."""
    return text.int("moe_intermediate_size", "expert_intermediate_size", default=dims.intermediate, low=1)


def shared_width(text: Fields, width: int) -> int:
    """Width of the shared experts together, 0 without any."""
    direct = text.maybe_int("shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim")
    if direct is not None:
        return direct
    names = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    return text.int(*names, default=0) * text.int("moe_shared_expert_intermediate_size", default=width)


def experts_in(stack: Stack, root: str, text: Fields, moe: Moe, dims: Dims, layers: Sequence[int]) -> None:
    """Router, routed and shared experts of ``layers``."""
    view = stack.at(f"{root}layers.N.{moe.block}", layers)
    count = text.int(*COUNT, low=1)
    width = expert_width(text, dims)
    view.router(
        moe.gate,
        dims.hidden,
        count,
        dtype=moe.gate_dtype,
        bias=moe.gate_bias,
        correction=moe.correction if text.bool("use_routing_bias", default=True) else None,
        correction_counted=moe.correction_counted,
    )
    view.experts(moe.experts, dims.hidden, width, count, bias=moe.expert_bias)
    shared = shared_width(text, width) if moe.shared else 0
    if shared:
        view.mlp(moe.shared, dims.hidden, shared, bias=biases(moe.style, text)[2])
        if moe.shared_gate:
            view.linear("shared_expert_gate", 1, dims.hidden, quantisable=False)


def moe_decoder(stack: Stack, text: Fields, architecture: str) -> None:
    """Lists a mixture-of-experts decoder of the table."""
    moe = MOES[architecture]
    dims = dims_of(text)
    ends(stack, "model.", moe.style, dims)
    attention_layers(stack, "model.", text, moe.style, dims)
    sparse = sparse_layers(text, dims.layers)
    experts_in(stack, "model.", text, moe, dims, sparse)
    stack.at("model.layers.N.", others(dims.layers, sparse)).mlp(
        moe.block, dims.hidden, dims.intermediate, bias=biases(moe.style, text)[2]
    )
    if architecture == "GptOssForCausalLM":
        sinks = stack.at("model.layers.N.attn.", dims.every, part=Part.ATTENTION)
        sinks.add("sinks", dims.heads, 1, Shard.COLUMN)


def llama4(stack: Stack, text: Fields, _architecture: str) -> None:
    """Llama 4: experts in every or every other layer, each with one shared expert."""
    dims = dims_of(text)
    root = "model."
    ends(stack, root, LLAMA, dims)
    attention_layers(stack, root, Fields({**text.raw, "use_qk_norm": False}, text.where), LLAMA, dims)
    sparse = sparse_layers(text, dims.layers)
    count = text.int("num_local_experts", low=1)
    view = stack.at(f"{root}layers.N.feed_forward.", sparse)
    view.router("router", dims.hidden, count)
    view.experts("experts.", dims.hidden, dims.intermediate, count)
    view.mlp("shared_expert.", dims.hidden, dims.intermediate)
    wide = text.int("intermediate_size_mlp", default=dims.intermediate)
    stack.at(f"{root}layers.N.", others(dims.layers, sparse)).mlp("feed_forward.", dims.hidden, wide)


def minimax_m3(stack: Stack, text: Fields, _architecture: str) -> None:
    """MiniMax-M3: per-head norms, an indexer in the sparse-attention layers, experts with shared ones."""
    dims = dims_of(text)
    style = Style(qk_norm="head")
    ends(stack, "model.", style, dims)
    attention_layers(stack, "model.", Fields({**text.raw, "use_qk_norm": False}, text.where), style, dims)
    config = text.sub("sparse_attention_config")
    if config is not None and config.bool("use_sparse_attention", default=True):
        freq = config.raw.get("sparse_attention_freq")
        on = tuple(i for i, x in enumerate(freq[: dims.layers]) if x) if isinstance(freq, list) else dims.every
        size = config.int("sparse_index_dim", default=128)
        view = stack.at("model.layers.N.self_attn.", on, part=Part.ATTENTION)
        heads = config.int("sparse_num_index_heads", default=1)
        view.column("index_q_proj", heads * size, dims.hidden, units=(heads,))
        view.linear("index_k_proj", size, dims.hidden)
        view.norms(("index_q_norm", "index_k_norm"), size)
    sparse = sparse_layers(text, dims.layers)
    moe = Moe(
        style,
        block="block_sparse_moe.",
        gate_dtype="float32",
        correction="e_score_correction_bias",
        shared="shared_experts.",
    )
    experts_in(stack, "model.", text, moe, dims, sparse)
    stack.at("model.layers.N.", others(dims.layers, sparse)).mlp(
        "mlp.", dims.hidden, text.int("dense_intermediate_size", default=dims.intermediate)
    )


def mimo_v2(stack: Stack, text: Fields, _architecture: str) -> None:
    """MiMo-V2: full and windowed layers with different heads, sinks on the windowed ones."""
    dims = dims_of(text)
    ends(stack, "model.", LLAMA, dims)
    pattern = text.list("hybrid_layer_pattern")
    windowed = tuple(i for i, on in enumerate(pattern[: dims.layers]) if on == 1)
    for layers, pre in ((others(dims.layers, windowed), ""), (windowed, "swa_")):
        heads = text.int(f"{pre}num_attention_heads", default=dims.heads)
        view = stack.at("model.layers.N.", layers)
        view.attention(
            "self_attn.",
            dims.hidden,
            heads,
            text.int(f"{pre}num_key_value_heads", default=dims.kv_heads),
            text.int(f"{pre}head_dim", default=dims.head),
            head_v=text.maybe_int(f"{pre}v_head_dim", "v_head_dim"),
            bias=text.bool("attention_bias"),
        )
        field = "add_swa_attention_sink_bias" if pre else "add_full_attention_sink_bias"
        if text.bool(field):
            view.inside("self_attn.", Part.ATTENTION).add("attention_sink_bias", heads, 1, Shard.COLUMN)
    stack.at("model.layers.N.", dims.every).norms(LLAMA.norms, dims.hidden)
    sparse = sparse_layers(text, dims.layers)
    moe = Moe(correction="gate.e_score_correction_bias", shared="shared_experts.", gate_dtype="float32")
    experts_in(stack, "model.", text, moe, dims, sparse)
    stack.at("model.layers.N.", others(dims.layers, sparse)).mlp("mlp.", dims.hidden, dims.intermediate)


def step3(stack: Stack, text: Fields, _architecture: str) -> None:
    """Step-3.5 and 3.7: per-head norms and output gate, experts with one shared expert."""
    dims = dims_of(text)
    groups = text.maybe_int("num_attention_groups", low=1)
    if groups:
        dims = replace(dims, kv_heads=groups)
    style = Style(qk_norm="head")
    ends(stack, "model.", style, dims)
    attention_layers(stack, "model.", text, style, dims)
    if text.bool("use_head_wise_attn_gate"):
        view = stack.at("model.layers.N.self_attn.", dims.every, part=Part.ATTENTION)
        view.column("g_proj", dims.heads, dims.hidden)
    sparse = sparse_layers(text, dims.layers)
    moe = Moe(
        style,
        block="moe.",
        gate_dtype="float32",
        correction="router_bias" if text.bool("use_moe_router_bias") else None,
    )
    experts_in(stack, "model.", text, moe, dims, sparse)
    shared = shared_width(text, expert_width(text, dims))
    if shared:
        stack.at("model.layers.N.", sparse).mlp("share_expert.", dims.hidden, shared)
    stack.at("model.layers.N.", others(dims.layers, sparse)).mlp("mlp.", dims.hidden, dims.intermediate)


def final_norm(stack: Stack, name: str, size: int, *, bias: bool = False) -> None:
    """A norm after the last layer."""
    stack.at("", place=Place.LAST).norm(name, size, bias=bias)
