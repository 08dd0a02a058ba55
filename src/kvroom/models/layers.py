"""From config fields to the caches that vLLM allocates, layer by layer.

The text model's ``model_type`` picks the family; where it is missing or private, the architecture's
name does. What neither names is priced as full attention on every layer, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvroom.errors import BadConfig
from kvroom.models.architectures import is_known, model_type_of
from kvroom.models.families import attention, encoders, indexed_heads, latent, linear, recurrent
from kvroom.models.families.common import MAX_DRAFTS, full_attention, kind_of, layer_count
from kvroom.models.fields import Fields
from kvroom.models.shape import Cache, CacheLayer, MlaCache, StateCache

Reader = Callable[[Fields], tuple[CacheLayer, ...]]

FAMILIES: dict[str, Reader] = {
    **dict.fromkeys(("gemma3n", "gemma4", "gemma4_unified"), attention.shared_tail),
    "llama4": attention.chunked,
    **dict.fromkeys(("mimo_v2_flash", "mimo_v2"), attention.unequal_values),
    **dict.fromkeys(("step3p5", "step3p7"), attention.step),
    "nemotron-nas": attention.blocks,
    "minicpm3": attention.unfused_latent,
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), latent.indexed),
    "deepseek_v4": latent.compressed,
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl"), indexed_heads.sparse_heads),
    **dict.fromkeys(("mamba", "falcon_mamba"), recurrent.mamba),
    "mamba2": recurrent.mamba2,
    "jamba": recurrent.jamba,
    **dict.fromkeys(("bamba", "granitemoehybrid"), recurrent.mamba2_and_attention),
    "falcon_h1": recurrent.mamba2_beside_attention,
    "zamba2": recurrent.zamba2,
    **dict.fromkeys(("nemotron_h", "nemotron_h_puzzle"), recurrent.nemotron_h),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "qwen3_5_moe", "olmo_hybrid"), linear.gated_delta_net
    ),
    "kimi_linear": linear.kimi_delta,
    **dict.fromkeys(("lfm2", "lfm2_moe"), linear.short_conv),
    **dict.fromkeys(
        ("minimax", "minimax_text_01", "minimax_m1", "bailing_moe_linear", "bailing_hybrid"),
        linear.softmax_every_few,
    ),
    "plamo2": recurrent.plamo2,
    **dict.fromkeys(("whisper", "bart", "mbart"), encoders.encoder_decoder),
    "mllama": encoders.cross_layers,
    **dict.fromkeys(
        (
            "bert", "roberta", "xlm-roberta", "modernbert", "nomic_bert", "gte", "new", "albert",
            "distilbert", "electra", "deberta-v2", "mpnet", "clip", "siglip", "jina_embeddings_v3",
        ),
        encoders.no_cache,
    ),
}  # fmt: skip
LATENT = frozenset(
    {
        "axk1", "deepseek_v2", "deepseek_v3", "deepseek_mtp", "glm4_moe_lite", "kimi_k2", "longcat_flash",
        "mistral4", "pangu_ultra_moe", "sarvam_mla",
    }
)  # fmt: skip
"""Served through vLLM's MLA where the config has ``kv_lora_rank`` (model_arch_config_convertor.py)."""


@dataclass(frozen=True, slots=True)
class Layers:
    """What the layers of a model keep, and what had to be assumed about them."""

    caches: tuple[CacheLayer, ...]
    draft_caches: tuple[CacheLayer, ...]
    """Of the checkpoint's own multi-token-prediction layers."""
    assumptions: tuple[str, ...] = ()


def read_layers(config: Fields, architecture: str) -> Layers:
    """The caches of the language model ``config``, whose top-level architecture is ``architecture``."""
    if kind_of(config) not in FAMILIES:
        named = [*config.list("architectures")[:1], architecture]
        kind = next((kind for each in named if (kind := model_type_of(str(each)))), None)
        config = config if kind is None else Fields({**config.raw, "model_type": kind}, config.where)
    reader, assumptions = _reader(config, architecture)
    caches = reader(config)
    return Layers(caches, _drafts(config, caches), (*assumptions, *_window_warning(config)))


def is_bidirectional(config: Fields, architecture: str) -> bool:
    """Whether attention runs both ways within one pass, so that nothing is kept (embedding models)."""
    return (
        "Bidirectional" in architecture
        or config.raw.get("is_causal") is False
        or (kind_of(config) in ("gemma3", "embedding_gemma2") and _is_set(config, "use_bidirectional_attention"))
    )


def _is_set(config: Fields, name: str) -> bool:
    return config.raw.get(name) in (True, "all")


def _reader(config: Fields, architecture: str) -> tuple[Reader, tuple[str, ...]]:
    kind = kind_of(config)
    if is_bidirectional(config, architecture):
        return encoders.no_cache, ()
    if kind in FAMILIES:
        return FAMILIES[kind], ()
    if kind in LATENT and "kv_lora_rank" in config:
        return latent.dense, ()
    if is_known(kind, architecture):
        return attention.uniform_or_windows, ()
    name = architecture or kind or "unnamed"
    text = f"The architecture {name} is not known: every layer is priced as attention"
    return attention.uniform_or_windows, (f"{text} with the config's own heads, head size and window.",)


def _window_warning(config: Fields) -> tuple[str, ...]:
    if kind_of(config) not in attention.WHOLE_MODEL_WINDOW or attention.model_window(config) is None:
        return ()
    types = attention.layer_types(config, layer_count(config)) or ()
    if len(set(types)) < 2:
        return ()
    return (
        "The config asks for a sliding window on some layers only, which vLLM does not serve for this "
        "model; every layer is priced as full attention.",
    )


def _drafts(config: Fields, caches: tuple[CacheLayer, ...]) -> tuple[CacheLayer, ...]:
    """Caches of the multi-token-prediction layers: one attention like the model's own, each."""
    kind = kind_of(config)
    count = config.maybe_int("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
    if count is None:
        count = 1 if kind == "qwen3_next" else 0
    if count == 0 or not caches:
        return ()
    if count > MAX_DRAFTS:
        raise BadConfig(f"{config.where}: {count} multi-token-prediction layers is more than any model has.")
    first = layer_count(config) if "num_hidden_layers" in config else caches[-1].index + 1
    own: list[tuple[Cache, str]]
    if kind == "deepseek_v4":
        own = latent.window_only(config)
    elif kind in ("deepseek_v32", "glm_moe_dsa"):
        own = [(latent.index_keys(config), "self_attn.indexer.k_cache")]
        own += [(latent.latent_cache(config, sparse=True), latent.ATTENTION)]
    else:
        template = _draft_template(config, kind, caches)
        if template is None:
            return ()
        own = [template]
    return tuple(CacheLayer(first + i, cache, name) for i in range(count) for cache, name in own)


def _draft_template(config: Fields, kind: str, caches: tuple[CacheLayer, ...]) -> tuple[Cache, str] | None:
    if kind in ("mimo_v2_flash", "mimo_v2"):
        layer = next((layer for layer in caches if getattr(layer.cache, "window", None)), caches[0])
        return layer.cache, layer.name
    for layer in caches:
        if isinstance(layer.cache, MlaCache):
            return layer.cache, layer.name
    if all(isinstance(layer.cache, StateCache) for layer in caches):
        return None
    return replace(full_attention(config)), "self_attn.attn"
