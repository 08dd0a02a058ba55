"""What an attention layer asks of a backend: the configuration that vLLM validates backends against."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from kvroom.devices.device import Device
from kvroom.models.shape import AttentionCache, AttentionKind, MlaCache, ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.settings import Settings

UNKNOWN_CAPABILITY = (8, 6)
"""Taken for a card whose compute capability nobody gave."""
PACKAGES = ("flashinfer", "flashmla", "fa3", "fa4")
"""What a build of vLLM may lack, so that another backend is chosen."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A kind of attention layer, as far as backends care."""

    head_size: int
    head_size_v: int
    mla: bool = False
    sparse: bool = False
    sink: bool = False
    sliding: bool = False
    attn_type: str = "decoder"


@dataclass(frozen=True, slots=True)
class Question:
    """A layer on a card under a configuration (vllm/v1/attention/selector.py: AttentionSelectorConfig)."""

    layer: Layer
    capability: tuple[int, int]
    dtype: str
    kv_cache_dtype: str
    block_size: int | None
    """Only what the user asked for."""
    mm_prefix: bool
    batch_invariant: bool
    dcp: bool
    heads: int
    """Query heads a GPU."""
    nope: int
    """Width of a latent head without its rotary part."""
    rope: int
    without: frozenset[str]
    """Those of ``PACKAGES`` that this build lacks."""
    flash_attn_version: int | None = None
    """Forced by the model or the user."""

    @property
    def major(self) -> int:
        """First number of the compute capability."""
        return self.capability[0]


@lru_cache(maxsize=512)
def layers_of(shape: ModelShape) -> tuple[Layer, ...]:
    """The different kinds of attention layers of ``shape``, in order of appearance; () without attention."""
    found: dict[Layer, None] = {}
    for entry in shape.caches:
        cache = entry.cache
        if isinstance(cache, AttentionCache):
            kind = "encoder_decoder" if cache.kind is AttentionKind.CROSS else "decoder"
            sliding = cache.kind is AttentionKind.SLIDING
            found[Layer(cache.head_size, cache.head_size_v, False, False, cache.sinks, sliding, kind)] = None
        elif isinstance(cache, MlaCache):
            width = cache.kv_lora_rank + cache.rope_size
            found[Layer(width, cache.kv_lora_rank, True, cache.sparse)] = None
    if not found and not shape.has_state and shape.heads:
        found[Layer(shape.head_size, shape.head_size, attn_type="encoder_only")] = None
    return tuple(found)


def questions(
    shape: ModelShape, args: EngineArgs, settings: Settings, device: Device, without: frozenset[str]
) -> tuple[Question, ...]:
    """One question for each kind of attention layer, the first layer's first."""
    rules = settings.rules
    kv_dtype = settings.kv_cache_dtype
    layers = layers_of(shape)
    if layers and layers[0].sparse:
        kv_dtype = rules["backend.sparse_kv"].get(kv_dtype, kv_dtype)
    if not layers:
        return ()
    first = Question(
        layer=layers[0],
        capability=device.compute_capability or UNKNOWN_CAPABILITY,
        dtype=settings.dtype,
        kv_cache_dtype=kv_dtype,
        block_size=args.block_size,
        mm_prefix=_mm_prefix(shape, args, settings),
        batch_invariant=args.env.get("VLLM_BATCH_INVARIANT", "0") not in {"", "0"},
        dcp=args.decode_context_parallel_size > 1,
        heads=max(1, shape.heads // args.tensor_parallel_size),
        nope=shape.qk_nope_head_size or shape.v_head_size,
        rope=shape.mla.rope_size if shape.mla else 0,
        without=without,
    )
    return (first, *(replace(first, layer=layer) for layer in layers[1:]))


def _mm_prefix(shape: ModelShape, args: EngineArgs, settings: Settings) -> bool:
    """Whether image tokens attend to each other and this release minds."""
    if not shape.is_prefix_lm_multimodal:
        return False
    family = "gemma4" if shape.model_type.startswith("gemma4") else shape.model_type
    if family not in settings.rules["backend.mm_prefix_models"]:
        return False
    limits = args.limit_mm_per_prompt or {}
    text_only = args.language_model_only or (bool(limits) and not any(limits.values()))
    return not (text_only and settings.rules["backend.mm_prefix_off_for_text"])
