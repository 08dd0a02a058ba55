"""Decoders with multi-head latent attention: DeepSeek, Kimi, GLM-5, MiniCPM3, Mistral 4, LongCat."""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.models.fields import Fields
from kvroom.models.weights.common import Dims, dims_of, others, sparse_layers
from kvroom.models.weights.dense import LLAMA, ends
from kvroom.models.weights.moe import COUNT, DEEPSEEK, Moe, experts_in
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import Part, Place, Shard


def latent_attention(stack: Stack, root: str, text: Fields, dims: Dims, layers: Sequence[int]) -> None:
    """Latent attention of ``layers``, and the sparse indexer where the config has one."""
    view = stack.at(f"{root}layers.N.", layers)
    q_lora = text.int("q_lora_rank", default=0)
    rope = text.int("qk_rope_head_dim", default=64)
    view.mla(
        "self_attn.",
        dims.hidden,
        dims.heads,
        q_lora=q_lora,
        kv_lora=text.int("kv_lora_rank", low=1),
        nope=text.int("qk_nope_head_dim", default=128),
        rope=rope,
        v=text.int("v_head_dim", default=128),
        bias=text.bool("attention_bias"),
    )
    if "index_topk" in text:
        indexer(stack, root, text, dims, layers, q_lora)


def indexer(stack: Stack, root: str, text: Fields, dims: Dims, layers: Sequence[int], q_lora: int) -> None:
    """The lightning indexer, whole on every rank, in the layers that do not reuse another's choice."""
    kinds = text.raw.get("indexer_types")
    if isinstance(kinds, list):
        own = {i for i, kind in enumerate(kinds) if kind == "full"}
        layers = tuple(i for i in layers if i in own or i >= dims.layers)
    size = text.int("index_head_dim", default=128)
    heads = text.int("index_n_heads", default=64)
    view = stack.at(f"{root}layers.N.self_attn.indexer.", layers, part=Part.ATTENTION)
    view.linear("wq_b", heads * size, q_lora)
    view.linear("wk", size, dims.hidden)
    view.norm("k_norm", size, bias=True)
    view.linear("weights_proj", heads, dims.hidden, quantisable=False)


def deepseek(stack: Stack, text: Fields, architecture: str) -> None:
    """DeepSeek-V2, V3, V3.2, Kimi-K2, GLM-4.7-Flash, GLM-5, Mistral 4."""
    dims = dims_of(text)
    ends(stack, "model.", LLAMA, dims)
    latent_attention(stack, "model.", text, dims, dims.every)
    stack.at("model.layers.N.", dims.every).norms(LLAMA.norms, dims.hidden)
    routed = text.int(*COUNT, default=0)
    sparse = sparse_layers(text, dims.layers) if routed else ()
    if routed:
        experts_in(stack, "model.", text, deepseek_moe(text, architecture), dims, sparse)
    stack.at("model.layers.N.", others(dims.layers, sparse)).mlp("mlp.", dims.hidden, dims.intermediate)


def deepseek_moe(text: Fields, architecture: str) -> Moe:
    """The experts' arrangement: a score correction only where routing is without auxiliary loss."""
    corrected = text.str("topk_method") == "noaux_tc" or architecture in (
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
    )
    return DEEPSEEK if corrected else Moe(shared="shared_experts.")


def minicpm3(stack: Stack, text: Fields, _architecture: str) -> None:
    """MiniCPM3: latent projections, but a full-width cache (vLLM runs it without absorption)."""
    dims = dims_of(text)
    ends(stack, "model.", LLAMA, dims)
    view = stack.at("model.layers.N.", dims.every)
    q_lora, kv_lora = text.int("q_lora_rank", low=1), text.int("kv_lora_rank", low=1)
    nope, rope = text.int("qk_nope_head_dim"), text.int("qk_rope_head_dim")
    v = text.int("v_head_dim", default=dims.hidden // dims.heads)
    inner = view.inside("self_attn.", Part.ATTENTION)
    inner.linear("q_a_proj", q_lora, dims.hidden)
    inner.norm("q_a_layernorm", q_lora)
    inner.column("q_b_proj", dims.heads * (nope + rope), q_lora)
    inner.linear("kv_a_proj_with_mqa", kv_lora + rope, dims.hidden)
    inner.norm("kv_a_layernorm", kv_lora)
    inner.column("kv_b_proj", dims.heads * (nope + v), kv_lora)
    inner.row("o_proj", dims.hidden, dims.heads * v)
    view.norms(LLAMA.norms, dims.hidden)
    view.mlp("mlp.", dims.hidden, dims.intermediate)


def deepseek_v4(stack: Stack, text: Fields, _architecture: str) -> None:
    """DeepSeek-V4: one shared key-value head, compressors, grouped output projection, hyper-connections."""
    dims = dims_of(text)
    ends(stack, "model.", LLAMA, dims)
    v4_layers(stack, text, dims, dims.every)
    hyper = text.int("hc_mult", default=4)
    view = stack.at("model.")
    view.place = Place.LAST
    view.add("hc_head", hyper * hyper * dims.hidden + hyper + 1, 1, dtype="float32")


def v4_layers(stack: Stack, text: Fields, dims: Dims, layers: Sequence[int]) -> None:
    """The decoder layers of DeepSeek-V4 (models/deepseek_v4/attention.py, compressor.py, nvidia/model.py)."""
    view = stack.at("model.layers.N.", layers)
    attn = view.inside("attn.", Part.ATTENTION)
    q_lora, groups = text.int("q_lora_rank", low=1), text.int("o_groups", default=8, low=1)
    o_lora = text.int("o_lora_rank", default=1024)
    attn.linear("fused_wqa_wkv", (q_lora, dims.head), dims.hidden)
    attn.norms(("q_norm",), q_lora)
    attn.norms(("kv_norm",), dims.head)
    attn.column("wq_b", dims.heads * dims.head, q_lora)
    attn.column("wo_a", groups * o_lora, dims.heads * dims.head // groups)
    attn.row("wo_b", dims.hidden, groups * o_lora)
    attn.add("attn_sink", dims.heads, 1, Shard.COLUMN, dtype="float32")
    ratios = text.list("compress_ratios")
    for ratio in sorted({r for r in ratios if isinstance(r, int) and r > 1}):
        at = tuple(i for i in layers if i < len(ratios) and ratios[i] == ratio)
        compressor(
            stack.at("model.layers.N.attn.compressor.", at, part=Part.ATTENTION),
            dims.hidden,
            dims.head,
            ratio,
        )
        if ratio == 4:
            v4_indexer(stack.at("model.layers.N.attn.indexer.", at, part=Part.ATTENTION), text, dims, q_lora)
    view.norms(("attn_norm", "ffn_norm"), dims.hidden)
    hyper = text.int("hc_mult", default=4)
    mix = (2 + hyper) * hyper
    view.add("hc", 2 * (mix * hyper * dims.hidden + mix + 3), 1, dtype="float32")
    count, width = text.int(*COUNT, low=1), text.int("moe_intermediate_size", low=1)
    hashed = tuple(layers)[: text.int("num_hash_layers", default=0)]
    ffn = view.inside("ffn.", Part.OTHER)
    ffn.linear("gate", count, dims.hidden, quantisable=False)
    table = text.int("num_experts_per_tok", default=6) * dims.vocab
    stack.at("model.layers.N.ffn.", hashed).add("gate.tid2eid", table, 1, dtype="int32", counted=False)
    rest = tuple(i for i in layers if i not in set(hashed))
    stack.at("model.layers.N.ffn.", rest).add("gate.e_score_correction_bias", count, 1, dtype="float32", counted=False)
    ffn.experts("experts.", dims.hidden, width, count)
    ffn.mlp("shared_experts.", dims.hidden, width * text.int("n_shared_experts", default=1))


def compressor(view: Stack, hidden: int, head: int, ratio: int) -> None:
    """The key-value compressor of one ratio; ratio 4 overlaps and is twice as wide."""
    width = head * (2 if ratio == 4 else 1)
    view.add("ape", ratio * width, 1, dtype="float32")
    view.linear("fused_wkv_wgate", (width, width), hidden, quantisable=False)
    view.norm("norm", head)


def v4_indexer(view: Stack, text: Fields, dims: Dims, q_lora: int) -> None:
    """The indexer of DeepSeek-V4, with a compressor of its own."""
    heads, size = text.int("index_n_heads", default=64), text.int("index_head_dim", default=128)
    view.linear("wq_b", heads * size, q_lora)
    view.linear("weights_proj", heads, dims.hidden, quantisable=False)
    compressor(view.inside("compressor.", Part.ATTENTION), dims.hidden, size, 4)
