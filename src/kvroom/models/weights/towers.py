"""The vision and audio towers of each multimodal architecture."""

from __future__ import annotations

from kvroom.models.fields import Fields
from kvroom.models.weights.classic import whisper_encoder
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import Part
from kvroom.models.weights.vision import at, block, clip, never_quantised, siglip, skip_loading, two_layers


def qwen_vl(stack: Stack, config: Fields, vision: Fields, text: Fields) -> None:
    """Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5 and 3.6: windowed or plain ViT with patch mergers."""
    depth = vision.int("depth", low=1)
    kind = config.str("model_type")
    hidden = vision.int("embed_dim", "hidden_size", low=1)
    heads, patch = vision.int("num_heads", low=1), vision.int("patch_size", "spatial_patch_size", default=14)
    temporal, channels = (
        vision.int("temporal_patch_size", default=2),
        vision.int("in_channels", "in_chans", default=3),
    )
    merge = vision.int("spatial_merge_size", default=2) ** 2
    newer = "num_position_embeddings" in vision
    old = kind.startswith("qwen2_vl")
    inner = hidden * vision.int("mlp_ratio", default=4) if old else vision.int("intermediate_size", low=1)
    out = vision.int("hidden_size", low=1) if old else vision.int("out_hidden_size", default=text.int("hidden_size"))
    top = at(stack, "visual.")
    top.add("patch_embed.proj", hidden, channels * temporal * patch * patch)
    if newer:
        top.add("patch_embed.proj.bias", hidden)
        top.add("pos_embed", vision.int("num_position_embeddings"), hidden)
    gated = not newer and not old
    block(
        at(stack, "visual.blocks.N.", depth),
        hidden,
        heads,
        inner,
        gated=gated,
        norm_bias=not gated,
        up="mlp.gate_up_proj" if gated else "mlp.linear_fc1",
        down="mlp.down_proj",
    )
    deep = vision.list("deepstack_visual_indexes") if newer else []
    mergers = [("visual.merger.", 1, hidden)]
    if deep:
        mergers.append(("visual.deepstack_merger_list.N.", len(deep), hidden * merge))
    for name, copies, width in mergers:
        view = at(stack, name, copies)
        view.norm("norm", width, bias=not gated)
        view.column("linear_fc1", hidden * merge, hidden * merge, bias=True)
        view.row("linear_fc2", out, hidden * merge, bias=True)


def llava(stack: Stack, config: Fields, vision: Fields, text: Fields) -> None:
    """LLaVA: CLIP without the blocks after the feature layer, two projections."""
    count = vision.int("num_hidden_layers", low=1)
    feature = config.raw.get("vision_feature_layer", -2)
    used = count + 1 + feature if isinstance(feature, int) and feature < 0 else count
    hidden = clip(stack, vision, "vision_tower.vision_model.", used)
    top = at(stack, "vision_tower.vision_model.")
    rest = at(stack, "vision_tower.vision_model.unused.", count - used)
    before = len(stack.tensors)
    block(rest, hidden, vision.int("num_attention_heads"), vision.int("intermediate_size"))
    top.norm("post_layernorm", hidden, bias=True)
    skip_loading(stack, before)
    two_layers(stack, "multi_modal_projector.", hidden, text.int("hidden_size", default=4096))


def gemma3_mm(stack: Stack, _config: Fields, vision: Fields, text: Fields) -> None:
    """Gemma 3: SigLIP and one projection."""
    hidden = siglip(stack, vision, "vision_tower.vision_model.")
    view = at(stack, "multi_modal_projector.")
    view.add("mm_input_projection_weight", hidden, text.int("hidden_size", default=2304))
    view.norm("mm_soft_emb_norm", hidden)


def gemma4_mm(stack: Stack, _config: Fields, vision: Fields, text: Fields) -> None:
    """Gemma 4: a Gemma-like tower with two-dimensional positions, whole on every rank."""
    hidden, layers = vision.int("hidden_size", low=1), vision.int("num_hidden_layers", low=1)
    patch, inner = vision.int("patch_size", default=16), vision.int("intermediate_size", low=1)
    heads, head = vision.int("num_attention_heads", low=1), vision.int("head_dim", default=64)
    kv = vision.int("num_key_value_heads", default=heads)
    top = at(stack, "vision_tower.")
    top.add(
        "patch_embedder.position_embedding_table",
        2 * vision.int("position_embedding_size", default=10240),
        hidden,
    )
    top.linear("patch_embedder.input_proj", hidden, 3 * patch * patch, quantisable=False)
    if vision.bool("standardize"):
        top.add("std_bias_scale", 2 * hidden, counted=False, part=Part.BUFFERS)
    view = at(stack, "vision_tower.encoder.layers.N.", layers)
    view.linear("self_attn.q_proj", heads * head, hidden, quantisable=False)
    view.linear("self_attn.kv_proj", 2 * kv * head, hidden, quantisable=False)
    view.linear("self_attn.o_proj", hidden, heads * head, quantisable=False)
    view.norms(("self_attn.q_norm", "self_attn.k_norm"), head)
    view.linear("mlp", 3 * inner, hidden, quantisable=False)
    names = (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    )
    view.norms(names, hidden)
    at(stack, "embed_vision.").linear("embedding_projection", text.int("hidden_size"), hidden)


def mistral3(stack: Stack, config: Fields, vision: Fields, text: Fields) -> None:
    """Mistral Small 3.x and Ministral 3: Pixtral's tower, a patch merger, two projections."""
    hidden, layers = vision.int("hidden_size", low=1), vision.int("num_hidden_layers", low=1)
    patch = vision.int("patch_size", default=14)
    top = at(stack, "vision_tower.")
    top.add("patch_conv", hidden, 3 * patch * patch)
    top.norm("ln_pre", hidden)
    view = at(stack, "vision_tower.transformer.layers.N.", layers)
    block(
        view,
        hidden,
        vision.int("num_attention_heads"),
        vision.int("intermediate_size"),
        bias=False,
        gated=True,
        norm_bias=False,
    )
    merge = config.int("spatial_merge_size", default=2) ** 2
    projector = at(stack, "multi_modal_projector.")
    projector.norm("norm", hidden)
    projector.linear("patch_merger.merging_layer", hidden, hidden * merge, quantisable=False)
    bias = config.bool("multimodal_projector_bias")
    two_layers(stack, "multi_modal_projector.", hidden, text.int("hidden_size", low=1), bias=bias)


def llama4_mm(stack: Stack, _config: Fields, vision: Fields, text: Fields) -> None:
    """Llama 4: a ViT with a pixel-shuffle adapter and one projection."""
    hidden, layers = vision.int("hidden_size", low=1), vision.int("num_hidden_layers", low=1)
    patch = vision.int("patch_size", default=14)
    start = len(stack.tensors)
    top = at(stack, "vision_model.")
    top.add("class_embedding", hidden)
    top.add("positional_embedding_vlm", (vision.int("image_size", default=336) // patch) ** 2 + 1, hidden)
    top.column("patch_embedding.linear", hidden, 3 * patch * patch)
    top.norms(("layernorm_pre", "layernorm_post"), hidden, bias=True)
    view = at(stack, "vision_model.model.layers.N.", layers)
    block(view, hidden, vision.int("num_attention_heads"), vision.int("intermediate_size"))
    out, inp = (
        vision.int("projector_output_dim", default=4096),
        vision.int("projector_input_dim", default=4096),
    )
    top.column("vision_adapter.mlp.fc1", inp, vision.int("intermediate_size"))
    top.row("vision_adapter.mlp.fc2", out, out)
    at(stack, "multi_modal_projector.").column("linear_1", text.int("hidden_size"), vision.int("vision_output_dim"))
    never_quantised(stack, start)


def mllama_mm(stack: Stack, _config: Fields, vision: Fields, text: Fields) -> None:
    """Llama 3.2 Vision: tiled ViT with global layers and gated tile positions."""
    hidden, layers = vision.int("hidden_size", low=1), vision.int("num_hidden_layers", low=1)
    extra, inner = vision.int("num_global_layers", default=8), vision.int("intermediate_size", low=1)
    patch, heads = (
        vision.int("patch_size", default=14),
        vision.int("attention_heads", "num_attention_heads", low=1),
    )
    tiles = vision.int("max_num_tiles", default=4)
    ratios = len(vision.list("supported_aspect_ratios")) or 8
    patches = (vision.int("image_size", default=448) // patch) ** 2 + 1
    top = at(stack, "vision_model.")
    top.add("patch_embedding", hidden, 3 * patch * patch)
    top.add("class_embedding", hidden)
    top.add("gated_positional_embedding.embedding", patches, hidden)
    top.add("gated_positional_embedding.tile_embedding", ratios + 1, tiles * patches * hidden)
    top.add("gated_positional_embedding.gate", 1)
    for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
        top.add(name, ratios + 1, tiles * hidden)
        top.add(f"{name}.gate", 1)
    top.norms(("layernorm_pre", "layernorm_post"), hidden, bias=True)
    for root, copies in (("transformer", layers), ("global_transformer", extra)):
        view = at(stack, f"vision_model.{root}.layers.N.", copies)
        view.column("attn.qkv", (hidden, hidden, hidden), hidden, units=(heads, heads, heads))
        view.row("attn.proj", hidden, hidden)
        view.column("mlp.fc1", inner, hidden, bias=True)
        view.row("mlp.fc2", hidden, inner, bias=True)
        view.norms(("norm1", "norm2"), hidden, bias=True)
    at(stack, "vision_model.global_transformer.gates.N.", extra).add("gate", 2)
    wide = vision.int("vision_output_dim", default=7680)
    at(stack, "multi_modal_projector.").linear("linear", text.int("hidden_size"), wide, bias=True, quantisable=False)


def glm4v(stack: Stack, _config: Fields, vision: Fields, text: Fields) -> None:
    """GLM-4.1V and GLM-4.5V: gated ViT, down-sampling convolution, gated merger."""
    depth, hidden = vision.int("depth", low=1), vision.int("hidden_size", low=1)
    inner, out = (
        vision.int("intermediate_size", low=1),
        vision.int("out_hidden_size", default=text.int("hidden_size")),
    )
    patch, temporal = vision.int("patch_size", default=14), vision.int("temporal_patch_size", default=2)
    merge = vision.int("spatial_merge_size", default=2)
    top = at(stack, "visual.")
    top.linear("patch_embed.proj", hidden, 3 * temporal * patch * patch, bias=True, quantisable=False)
    top.add("embeddings.position_embedding", (vision.int("image_size", default=336) // patch) ** 2, hidden)
    top.norms(("post_conv_layernorm", "post_layernorm"), hidden)
    # the blocks' feed-forward is as wide as the output, the merger's as the config's intermediate size
    block(
        at(stack, "visual.blocks.N.", depth),
        hidden,
        vision.int("num_heads", low=1),
        out,
        bias=False,
        gated=True,
        norm_bias=False,
        attn_bias=vision.bool("attention_bias"),
    )
    top.linear("downsample", out, hidden * merge * merge, bias=True, quantisable=False)
    merger = at(stack, "visual.merger.")
    merger.column("proj", out, out)
    merger.norm("post_projection_norm", out, bias=True)
    merger.column("gate_up_proj", (inner, inner), out)
    merger.row("down_proj", out, inner)


def lfm2_vl(stack: Stack, config: Fields, vision: Fields, text: Fields) -> None:
    """LFM2-VL: SigLIP 2 and a pixel-unshuffling projector."""
    hidden = siglip(stack, vision, "vision_tower.vision_model.")
    factor = config.int("downsample_factor", default=2) ** 2
    inner = config.int("projector_hidden_size", default=2560)
    if config.bool("projector_use_layernorm", default=True):
        at(stack, "multi_modal_projector.").norm("layer_norm", hidden * factor, bias=True)
    bias = config.bool("projector_bias", default=True)
    two_layers(stack, "multi_modal_projector.", hidden * factor, text.int("hidden_size"), bias=bias, inner=inner)


def moonvit(stack: Stack, _config: Fields, vision: Fields, text: Fields) -> None:
    """Kimi-VL, Kimi-K2.5 and Kimi-K3: MoonViT and a patch merger."""
    hidden, layers = (
        vision.int("vt_hidden_size", "hidden_size", low=1),
        vision.int("vt_num_hidden_layers", "num_hidden_layers", low=1),
    )
    inner = vision.int("vt_intermediate_size", "intermediate_size", low=1)
    heads = vision.int("vt_num_attention_heads", "num_attention_heads", low=1)
    patch, bias = vision.int("patch_size", default=14), vision.bool("linear_bias", default=True)
    wide = vision.int("qkv_hidden_size", default=hidden)
    rms = vision.str("norm_type") == "rmsnorm"
    top = at(stack, "vision_tower.")
    conv_bias = vision.bool("patch_embed_proj_bias", default=True)
    top.linear("patch_embed.proj", hidden, 3 * patch * patch, bias=conv_bias, quantisable=False)
    grid = vision.int("init_pos_emb_height", default=64) * vision.int("init_pos_emb_width", default=64)
    top.add("patch_embed.pos_emb", grid, hidden)
    view = at(stack, "vision_tower.encoder.blocks.N.", layers)
    attn_bias = vision.bool("attn_bias", default=True)
    view.column("wqkv", (wide, wide, wide), hidden, bias=attn_bias, units=(heads, heads, heads))
    view.row("wo", hidden, wide, bias=attn_bias)
    view.column("mlp.fc0", inner, hidden, bias=bias)
    view.row("mlp.fc1", hidden, inner, bias=bias)
    view.norms(("norm0", "norm1"), hidden, bias=not rms)
    top.norm("encoder.final_layernorm", hidden, bias=not rms)
    kernel = vision.list("merge_kernel_size")
    factor = kernel[0] * kernel[1] if len(kernel) == 2 and all(isinstance(k, int) for k in kernel) else 4
    projector = at(stack, "mm_projector.")
    newer = vision.str("mm_projector_type") == "patchmergerv2"
    projector.norm("post_norm" if newer else "pre_norm", text.int("hidden_size") if newer else hidden, bias=not newer)
    projector.linear("linear_1", hidden * factor, hidden * factor, bias=not newer)
    projector.linear("linear_2", text.int("hidden_size"), hidden * factor, bias=not newer)


def minimax_vl(stack: Stack, config: Fields, vision: Fields, text: Fields) -> None:
    """MiniMax-M3: CLIP blocks with rotary positions, a projector and a patch-merging one."""
    hidden, layers = vision.int("hidden_size", low=1), vision.int("num_hidden_layers", low=1)
    patch = vision.int("patch_size", default=14)
    compression = vision.sub("img_token_compression_config")
    merge = compression.int("spatial_merge_size", default=2) ** 2 if compression else 4
    temporal = compression.int("temporal_patch_size", default=2) if compression else 2
    top = at(stack, "vision_tower.vision_model.")
    top.add("embeddings.patch_embedding", hidden, 3 * temporal * patch * patch)
    top.norm("pre_layrnorm", hidden, bias=True)
    view = at(stack, "vision_tower.vision_model.encoder.layers.N.", layers)
    block(view, hidden, vision.int("num_attention_heads"), vision.int("intermediate_size"))
    out, inner = text.int("hidden_size"), config.int("projector_hidden_size", default=text.int("hidden_size"))
    two_layers(stack, "multi_modal_projector.", hidden, out, inner=inner)
    two_layers(stack, "patch_merge_mlp.", out * merge, out, inner=inner)


def voxtral(stack: Stack, config: Fields, _vision: Fields, text: Fields) -> None:
    """Voxtral: Whisper's encoder and two projections over four frames."""
    audio = config.sub("audio_config")
    if audio is None:
        return
    hidden = whisper_encoder(stack, audio, "whisper_encoder.whisper_encoder.")
    view = at(stack, "audio_language_adapter.")
    out = text.int("hidden_size", low=1)
    view.linear("w_in", out, audio.int("intermediate_size", default=4 * hidden), quantisable=False)
    view.linear("w_out", out, out, quantisable=False)
