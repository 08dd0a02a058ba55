"""Older decoders and encoders with learned positions, fused names of their own, or two halves."""

from __future__ import annotations

from kvroom.models.fields import Fields
from kvroom.models.weights.common import dims_of, layer_count, others
from kvroom.models.weights.dense import LLAMA, attention_layers, ends
from kvroom.models.weights.moe import final_norm
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import Part, Place, Shard


def gpt2(stack: Stack, text: Fields, architecture: str) -> None:
    """GPT-2 and GPTBigCode: learned positions, biases everywhere, tied head."""
    dims = dims_of(text)
    kv = 1 if "BigCode" in architecture and text.bool("multi_query", default=True) else dims.heads
    positions = text.int("n_positions", "max_position_embeddings", default=1024)
    stack.embedding("transformer.wte", dims.vocab, dims.hidden)
    stack.at("transformer.", part=Part.EMBEDDING, place=Place.FIRST).add("wpe", positions, dims.hidden)
    view = stack.at("transformer.h.N.", dims.every)
    view.attention("attn.", dims.hidden, dims.heads, kv, dims.head, bias=True, out_bias=True)
    view.mlp("mlp.", dims.hidden, dims.intermediate, gated=False, bias=True, up="c_fc", down="c_proj")
    view.norms(("ln_1", "ln_2"), dims.hidden, bias=True)
    final_norm(stack, "transformer.ln_f", dims.hidden, bias=True)
    stack.head("lm_head", dims.vocab, dims.hidden, tied=dims.tied)


def opt(stack: Stack, text: Fields, _architecture: str) -> None:
    """OPT: learned positions with an offset of two, biases everywhere, tied head."""
    dims = dims_of(text)
    stack.embedding("model.decoder.embed_tokens", dims.vocab, dims.hidden)
    first = stack.at("model.decoder.", part=Part.EMBEDDING, place=Place.FIRST)
    first.add("embed_positions", text.int("max_position_embeddings", default=2048) + 2, dims.hidden)
    view = stack.at("model.decoder.layers.N.", dims.every)
    view.attention("self_attn.", dims.hidden, dims.heads, dims.heads, dims.head, bias=True, out_bias=True)
    view.mlp("", dims.hidden, dims.intermediate, gated=False, bias=True, up="fc1", down="fc2")
    view.norms(("self_attn_layer_norm", "final_layer_norm"), dims.hidden, bias=True)
    final_norm(stack, "model.decoder.final_layer_norm", dims.hidden, bias=True)
    stack.head("lm_head", dims.vocab, dims.hidden, tied=text.bool("tie_word_embeddings", default=True))


def falcon(stack: Stack, text: Fields, _architecture: str) -> None:
    """Falcon 7B, 40B and 11B: parallel attention and feed-forward, few or one key head."""
    dims = dims_of(text)
    kv = dims.kv_heads
    new = text.bool("new_decoder_architecture")
    if not new and text.bool("multi_query", default=True):
        kv = 1
    bias = text.bool("bias")
    stack.embedding("transformer.word_embeddings", dims.vocab, dims.hidden)
    view = stack.at("transformer.h.N.", dims.every)
    view.attention("self_attention.", dims.hidden, dims.heads, kv, dims.head, bias=bias, out_bias=bias)
    inner = text.int("ffn_hidden_size", "intermediate_size", default=4 * dims.hidden)
    view.mlp("mlp.", dims.hidden, inner, gated=False, bias=bias, up="dense_h_to_4h", down="dense_4h_to_h")
    one = text.int("num_ln_in_parallel_attn", default=2 if new else 1) == 1
    names = ("input_layernorm",) if one else ("ln_attn", "ln_mlp")
    view.norms(names if new or text.bool("parallel_attn", default=True) else LLAMA.norms, dims.hidden, bias=True)
    final_norm(stack, "transformer.ln_f", dims.hidden, bias=True)
    stack.head("lm_head", dims.vocab, dims.hidden, tied=text.bool("tie_word_embeddings", default=True))


def bloom(stack: Stack, text: Fields, _architecture: str) -> None:
    """BLOOM: ALiBi, biases everywhere, a norm after the embedding."""
    dims = dims_of(text)
    stack.embedding("transformer.word_embeddings", dims.vocab, dims.hidden)
    stack.at("transformer.", place=Place.FIRST).norm("word_embeddings_layernorm", dims.hidden, bias=True)
    view = stack.at("transformer.h.N.", dims.every)
    view.attention("self_attention.", dims.hidden, dims.heads, dims.heads, dims.head, bias=True, out_bias=True)
    view.mlp("mlp.", dims.hidden, 4 * dims.hidden, gated=False, bias=True)
    view.norms(LLAMA.norms, dims.hidden, bias=True)
    final_norm(stack, "transformer.ln_f", dims.hidden, bias=True)
    stack.head("lm_head", dims.vocab, dims.hidden, tied=text.bool("tie_word_embeddings", default=True))


def gptj(stack: Stack, text: Fields, _architecture: str) -> None:
    """GPT-J: one norm, feed-forward biases, a head with a bias."""
    dims = dims_of(text)
    stack.embedding("transformer.wte", dims.vocab, dims.hidden)
    view = stack.at("transformer.h.N.", dims.every)
    view.attention("attn.", dims.hidden, dims.heads, dims.heads, dims.head)
    view.mlp("mlp.", dims.hidden, 4 * dims.hidden, gated=False, bias=True, up="fc_in", down="fc_out")
    view.norm("ln_1", dims.hidden, bias=True)
    final_norm(stack, "transformer.ln_f", dims.hidden, bias=True)
    stack.head("lm_head", dims.vocab, dims.hidden, tied=text.bool("tie_word_embeddings"), bias=True)


def deci(stack: Stack, text: Fields, _architecture: str) -> None:
    """Nemotron-NAS (DeciLM): every block has its own attention groups and feed-forward width, or none."""
    dims = dims_of(text)
    ends(stack, "model.", LLAMA, dims)
    blocks = text.list("block_configs")[: dims.layers]
    attention: dict[int, list[int]] = {}
    widths: dict[int, list[int]] = {}
    for i, raw in enumerate(blocks):
        block = Fields(raw, f"{text.where}: block_configs[{i}]")
        attn, ffn = block.sub("attention"), block.sub("ffn")
        if attn is not None and not attn.bool("no_op") and not attn.bool("replace_with_linear"):
            kv = dims.heads // attn.int("n_heads_in_group", default=1, low=1)
            attention.setdefault(kv, []).append(i)
        if ffn is not None and not ffn.bool("no_op") and not ffn.bool("replace_with_linear"):
            inner = int(2 * ffn.float("ffn_mult", default=4.0) * dims.hidden / 3)
            widths.setdefault(-(-inner // 256) * 256, []).append(i)
    for kv, layers in attention.items():
        view = stack.at("model.layers.N.", tuple(layers))
        view.attention("self_attn.", dims.hidden, dims.heads, kv, dims.head, bias=text.bool("attention_bias"))
        view.norm("input_layernorm", dims.hidden)
    for inner, layers in widths.items():
        view = stack.at("model.layers.N.", tuple(layers))
        view.mlp("mlp.", dims.hidden, inner, bias=text.bool("mlp_bias"))
        view.norm("post_attention_layernorm", dims.hidden)


def bert(stack: Stack, text: Fields, architecture: str) -> None:
    """BERT and RoBERTa: three embeddings, post-norms, biases everywhere, a pooler in the checkpoint."""
    dims = dims_of(text)
    stack.embedding("embeddings.word_embeddings", dims.vocab, dims.hidden)
    first = stack.at("embeddings.", part=Part.EMBEDDING, place=Place.FIRST)
    first.add("position_embeddings", text.int("max_position_embeddings", default=512), dims.hidden)
    first.add("token_type_embeddings", text.int("type_vocab_size", default=2), dims.hidden)
    first.norm("LayerNorm", dims.hidden, bias=True)
    view = stack.at("encoder.layer.N.", dims.every)
    view.attention("attention.", dims.hidden, dims.heads, dims.heads, dims.head, bias=True, out_bias=True)
    view.mlp("", dims.hidden, dims.intermediate, gated=False, bias=True, up="intermediate", down="output")
    view.norms(("attention.output.LayerNorm", "output.LayerNorm"), dims.hidden, bias=True)
    if architecture in ("BertModel", "BertForSequenceClassification", "BertEmbeddingModel"):
        last = stack.at("pooler.", place=Place.LAST)
        last.linear("dense", dims.hidden, dims.hidden, bias=True, quantisable=False)


def modernbert(stack: Stack, text: Fields, _architecture: str) -> None:
    """ModernBERT: gated feed-forward, no biases, no norm before the first layer's attention."""
    dims = dims_of(text)
    stack.embedding("embeddings.tok_embeddings", dims.vocab, dims.hidden)
    bias = text.bool("norm_bias")
    stack.at("embeddings.", place=Place.FIRST).norm("norm", dims.hidden, bias=bias)
    view = stack.at("layers.N.", dims.every)
    attn_bias = text.bool("attention_bias")
    view.attention(
        "attn.",
        dims.hidden,
        dims.heads,
        dims.heads,
        dims.head,
        bias=attn_bias,
        out_bias=attn_bias,
        out_name="Wo",
    )
    view.mlp("mlp.", dims.hidden, dims.intermediate, bias=text.bool("mlp_bias"), up="Wi", down="Wo")
    stack.at("layers.N.", range(1, dims.layers)).norm("attn_norm", dims.hidden, bias=bias)
    view.norm("mlp_norm", dims.hidden, bias=bias)
    final_norm(stack, "final_norm", dims.hidden, bias=bias)


def whisper_encoder(stack: Stack, config: Fields, root: str, part: Part = Part.VISION) -> int:
    """Whisper's audio encoder; returns its width."""
    hidden = config.int("d_model", "hidden_size", low=1)
    layers = config.int("encoder_layers", "num_hidden_layers", low=1)
    heads = config.int("encoder_attention_heads", "num_attention_heads", low=1)
    inner = config.int("encoder_ffn_dim", "intermediate_size", low=1)
    top = stack.at(root, part=part, place=Place.EVERY)
    top.add("conv1", hidden * 3, config.int("num_mel_bins", default=80))
    top.add("conv2", hidden * 3, hidden)
    top.add("conv.bias", 2 * hidden)
    top.add("embed_positions", config.int("max_source_positions", default=1500), hidden)
    top.norm("layer_norm", hidden, bias=True)
    view = stack.at(f"{root}layers.N.", part=part, place=Place.EVERY, copies=layers)
    whisper_attention(view, "self_attn", hidden, heads)
    view.column("mlp.fc1", inner, hidden, bias=True)
    view.row("mlp.fc2", hidden, inner, bias=True)
    view.norms(("self_attn_layer_norm", "final_layer_norm"), hidden, bias=True)
    return hidden


def whisper_attention(view: Stack, name: str, hidden: int, heads: int) -> None:
    """Whisper's attention, whose keys have no bias (vLLM holds a zero one)."""
    view.column(f"{name}.qkv_proj", (hidden, hidden, hidden), hidden, units=(heads, heads, heads))
    view.add(f"{name}.qkv_proj.bias", (hidden, hidden), 1, Shard.COLUMN)
    view.add(f"{name}.k_proj.bias", hidden, 1, Shard.COLUMN, counted=False)
    view.row(f"{name}.out_proj", hidden, hidden, bias=True)


def whisper(stack: Stack, text: Fields, _architecture: str) -> None:
    """Whisper: an audio encoder and a decoder that attends to it."""
    hidden = whisper_encoder(stack, text, "model.encoder.")
    layers, vocab = (
        layer_count(Fields({"num_hidden_layers": text.raw.get("decoder_layers")})),
        text.int("vocab_size"),
    )
    heads = text.int("decoder_attention_heads", low=1)
    inner = text.int("decoder_ffn_dim", low=1)
    first = stack.at("model.decoder.", part=Part.EMBEDDING, place=Place.FIRST)
    first.add("embed_tokens", vocab, hidden)
    first.add("embed_positions", text.int("max_target_positions", default=448), hidden)
    view = stack.at("model.decoder.layers.N.", range(layers), part=Part.ATTENTION)
    whisper_attention(view, "self_attn", hidden, heads)
    whisper_attention(view, "encoder_attn", hidden, heads)
    view.inside("mlp.", Part.MLP).column("fc1", inner, hidden, bias=True)
    view.inside("mlp.", Part.MLP).row("fc2", hidden, inner, bias=True)
    view.norms(("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"), hidden, bias=True)
    final_norm(stack, "model.decoder.layer_norm", hidden, bias=True)
    stack.head("proj_out", vocab, hidden, tied=text.bool("tie_word_embeddings", default=True))


def mllama(stack: Stack, text: Fields, _architecture: str) -> None:
    """Llama 3.2 Vision's text model: cross-attention layers among Llama's own, eight more embeddings."""
    dims = dims_of(text)
    cross = tuple(i for i in text.list("cross_attention_layers") if isinstance(i, int) and i < dims.layers)
    own = others(dims.layers, cross)
    stack.embedding("model.embed_tokens", dims.vocab + 8, dims.hidden)
    final_norm(stack, "model.norm", dims.hidden)
    stack.head("lm_head", dims.vocab, dims.hidden, tied=False)
    attention_layers(stack, "model.", text, LLAMA, dims, own)
    view = stack.at("model.layers.N.", cross)
    view.attention("cross_attn.", dims.hidden, dims.heads, dims.kv_heads, dims.head, qk_norm=dims.head)
    view.norms(LLAMA.norms, dims.hidden)
    view.norm("cross_attn_attn_gate", 1)
    view.norm("cross_attn_mlp_gate", 1)
    stack.at("model.layers.N.", dims.every).mlp("mlp.", dims.hidden, dims.intermediate)
