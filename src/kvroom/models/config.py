"""A config.json -> a ModelShape: everything the arithmetic needs, checked once.

Reading order and names follow vLLM (``vllm/config/model.py``, ``vllm/transformers_utils``). The
quantisation and the tensors are read by their own modules from the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvroom.errors import BadConfig
from kvroom.models.architectures import is_pooling
from kvroom.models.defaults import language_part, merge, with_class_defaults
from kvroom.models.experts import read_experts
from kvroom.models.families.attention import model_window
from kvroom.models.families.common import kind_of
from kvroom.models.fields import Fields
from kvroom.models.heads import Heads, read_heads
from kvroom.models.layers import Layers, is_bidirectional, read_layers
from kvroom.models.limits import position_limits, read_rope
from kvroom.models.quantization import read_quantization, unread_method
from kvroom.models.shape import AttentionCache, AttentionKind, MlaCache, ModelShape, StateCache
from kvroom.models.vision import read_vision
from kvroom.models.weights.tensor import parameters
from kvroom.models.weights.tensors import tensors_of

DTYPES = {
    "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "half": "float16", "fp16": "float16",
    "float32": "float32", "float": "float32", "fp32": "float32", "float8_e4m3fn": "bfloat16",
}  # fmt: skip
PREFIX_LM = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})
"""Image tokens attend to each other (model_arch_config_convertor.py: is_mm_prefix_lm)."""
LLAMA_VISION_TILES = 4


def read_config(
    raw: Mapping[str, Any],
    *,
    name: str,
    source: str = "",
    hf_quant_config: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    checkpoint_bytes: int | None = None,
    checkpoint_bytes_by_dtype: tuple[tuple[str, int], ...] = (),
) -> ModelShape:
    """The model that ``raw`` (the parsed config.json) describes, under the name ``name``.

    ``overrides`` (``--hf-overrides``) are merged into it first. ``hf_quant_config`` is ModelOpt's file
    beside it; ``checkpoint_bytes`` what the safetensors headers say. Raises BadConfig for a config that
    is damaged, hostile or lacks what the arithmetic needs.
    """
    whole = Fields(with_class_defaults(merge(Fields(raw).raw, overrides or {})))
    try:
        shape = _read(whole, hf_quant_config)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        # A combination of values that no check foresaw: still one message, with the cause kept for a report.
        raise BadConfig(
            f"config.json of {name} holds values that do not fit together ({type(error).__name__}: {error})."[:300],
            "Compare it with the published config.json; if it is the same, please report it.",
        ) from error
    return replace(
        shape,
        name=name,
        source=source,
        checkpoint_bytes=checkpoint_bytes,
        checkpoint_bytes_by_dtype=checkpoint_bytes_by_dtype,
    )


def _read(whole: Fields, hf_quant_config: Mapping[str, Any] | None) -> ModelShape:
    inner = language_part(whole.raw)
    language = whole if inner is whole.raw else Fields(inner, "config.json: text_config")
    architecture = _architecture(whole)
    layers = read_layers(language, architecture)
    _check_caches(layers)
    quantization = read_quantization(whole, hf_quant_config)
    unread = unread_method(whole)
    tensors, draft_tensors = tensors_of(whole, architecture)
    attends = [layer.cache for layer in layers.caches if not isinstance(layer.cache, StateCache)]
    heads = read_heads(language) if attends or not layers.caches else Heads(0, 0, 0)
    return ModelShape(
        name="",
        architecture=architecture,
        model_type=whole.str("model_type"),
        dtype=_dtype(whole, language),
        layers=_layer_count(language, layers),
        hidden_size=language.int("hidden_size", "n_embd", "d_model", low=1),
        vocab_size=language.int("vocab_size", "padded_vocab_size", low=1),
        heads=heads.query,
        kv_heads=next((each.kv_heads for each in attends if isinstance(each, AttentionCache)), heads.kv),
        head_size=_head_size(heads.size, layers),
        intermediate_size=_intermediate_size(language),
        caches=layers.caches,
        draft_caches=layers.draft_caches,
        tensors=tensors,
        draft_tensors=draft_tensors,
        quantization=quantization,
        experts=read_experts(language),
        vision=read_vision(whole),
        mla=next((layer.cache for layer in layers.caches if isinstance(layer.cache, MlaCache)), None),
        q_lora_rank=language.int("q_lora_rank", default=0),
        v_head_size=language.int("v_head_dim", default=heads.size),
        position_limits=position_limits(language),
        rope=read_rope(language),
        sliding_window=model_window(language),
        tied_embeddings=_tied(whole, language),
        is_pooling=is_pooling(architecture) or is_bidirectional(language, architecture),
        is_encoder_decoder=any(_is_cross(layer.cache) for layer in layers.caches),
        encoder_len=_encoder_len(whole, language, layers),
        is_prefix_lm_multimodal=_prefix_lm(whole, language),
        kv_cache_dtype_hint=kv_cache_dtype_hint(whole, hf_quant_config),
        total_params=parameters(tensors),
        assumptions=layers.assumptions + _plain_after_all(unread),
        unread_quantization=unread,
        qk_nope_head_size=language.int("qk_nope_head_dim", default=0),
    )


def _plain_after_all(method: str) -> tuple[str, ...]:
    if not method:
        return ()
    return (
        f"The quantisation method {method[:40]} is not known: the weights are priced as stored in the model's dtype.",
    )


def _check_caches(layers: Layers) -> None:
    """Refuse caches of no width, which a size divided by too large a count becomes, and unknown dtypes."""
    for cache in {layer.cache for layer in (*layers.caches, *layers.draft_caches)}:
        if isinstance(cache, StateCache):
            dtype = cache.state_dtype
            if dtype is not None and dtype not in DTYPES.values():
                raise BadConfig(f"config.json: recurrent states of dtype '{dtype[:40]}' cannot be stored.")
        elif (cache.kv_lora_rank if isinstance(cache, MlaCache) else cache.head_size) < 1:
            raise BadConfig(
                "config.json: the heads of an attention layer have no width.",
                "Check head_dim, hidden_size and num_attention_heads (or kv_lora_rank).",
            )


def _architecture(config: Fields) -> str:
    """The first architecture named at the top, else by the nested language model; empty when none is."""
    for level in (config.raw, language_part(config.raw)):
        named = Fields(level, config.where).list("architectures")
        if named:
            if not isinstance(named[0], str) or len(named[0]) > 200:
                raise BadConfig("config.json: 'architectures' should be a list of class names.")
            return str(named[0])
    return ""


def _dtype(config: Fields, language: Fields) -> str:
    """The declared dtype, looked for where vLLM looks; bfloat16 where none is declared."""
    for level in (config, language, config.sub("vision_config") if "vision_config" in config else None):
        stated = level.str("dtype", "torch_dtype") if level is not None else ""
        if stated and stated != "auto":
            dtype = DTYPES.get(stated.removeprefix("torch."))
            if dtype is None:
                raise BadConfig(f"config.json: dtype '{stated[:40]}' is none that vLLM serves.")
            return dtype
    return "bfloat16"


def _layer_count(language: Fields, layers: Layers) -> int:
    stated = language.maybe_int("decoder_layers") if any(_is_cross(x.cache) for x in layers.caches) else None
    stated = stated or language.maybe_int("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if stated is not None:
        return stated
    return len(language.list("layers_block_type")) or len(language.str("hybrid_override_pattern"))


def _head_size(size: int, layers: Layers) -> int:
    """The head size as vLLM states it: the latent vector's width where attention is latent."""
    for layer in layers.caches:
        if isinstance(layer.cache, MlaCache):
            return layer.cache.kv_lora_rank + layer.cache.rope_size
        if isinstance(layer.cache, AttentionCache):
            return layer.cache.head_size
    return size


def _intermediate_size(language: Fields) -> int:
    for name in ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "decoder_ffn_dim"):
        value = language.raw.get(name)
        if isinstance(value, list) and value:  # Gemma 3n: one width a layer
            value = max(value) if all(isinstance(each, int) for each in value) else value
        if value is not None:
            return Fields({name: value}, language.where).int(name)
    return language.int("moe_intermediate_size", default=4 * language.int("hidden_size", "n_embd", default=0))


def _tied(config: Fields, language: Fields) -> bool:
    """Whether input and output embeddings are one tensor; the outer config wins where both speak."""
    for level in (config, language):
        if "tie_word_embeddings" in level:
            return level.bool("tie_word_embeddings")
    return language.bool("tie_embedding")


def _is_cross(cache: object) -> bool:
    return isinstance(cache, AttentionCache) and cache.kind is AttentionKind.CROSS


def _encoder_len(config: Fields, language: Fields, layers: Layers) -> int:
    """Tokens of the encoder's longest output, which cross attention keeps; 0 without it."""
    if not any(_is_cross(layer.cache) for layer in layers.caches):
        return 0
    vision = config.sub("vision_config") if "vision_config" in config else None
    if kind_of(language) == "mllama" and vision is not None:
        side = vision.int("image_size", default=448, low=1) // vision.int("patch_size", default=14, low=1)
        return (side * side + 1) * vision.int("max_num_tiles", default=LLAMA_VISION_TILES, low=1)
    return language.int("max_source_positions", "max_position_embeddings", default=0)


def _prefix_lm(config: Fields, language: Fields) -> bool:
    stated = config.raw.get("is_mm_prefix_lm")
    if isinstance(stated, bool):
        return stated
    kind = config.str("model_type")
    if kind.startswith("gemma4"):
        return language.raw.get("use_bidirectional_attention") == "vision"
    return kind in PREFIX_LM


def kv_cache_dtype_hint(config: Fields, hf_quant_config: Mapping[str, Any] | None) -> str | None:
    """``fp8`` or ``nvfp4`` where the checkpoint asks for that KV cache, else None.

    The config.json's own quantisation counts, and ModelOpt's second file only without one
    (config/model.py: _parse_quant_hf_config, utils/torch_utils.py: get_kv_cache_quant_algo_string).
    """
    levels = (config.raw, language_part(config.raw))
    stated = [level.get("quantization_config") or level.get("compression_config") for level in levels]
    quant = next((each for each in (*stated, hf_quant_config) if isinstance(each, Mapping)), None)
    if quant is None:
        return None
    parts = (part for part in (quant.get("quantization"), quant) if isinstance(part, Mapping))
    return next((hint for hint in map(_hint, parts) if hint is not None), None)


def _hint(quant: Mapping[str, Any]) -> str | None:
    scheme = quant.get("kv_cache_scheme") or quant.get("kv_cache_quant_algo")
    if isinstance(scheme, Mapping):
        bits = Fields(scheme, "kv_cache_scheme").maybe_int("num_bits")
        return {8: "fp8", 4: "nvfp4"}.get(bits or 0) if scheme.get("type") == "float" else None
    if isinstance(scheme, str):
        return {"fp8": "fp8", "nvfp4": "nvfp4"}.get(scheme.lower())
    return None
