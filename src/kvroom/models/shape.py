"""What is served, as vLLM sees it: layers and what each keeps in the KV cache.

A ``ModelShape`` is read once from a config.json (``kvroom.models.config``) and holds whole-model
numbers, before any sharding. Sizes are counts of elements unless a name says bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvroom.models.quantization import Quantization
    from kvroom.models.weights import Tensor


class AttentionKind(StrEnum):
    """How much of the past an attention layer keeps."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    CROSS = "cross"
    """Keys and values of the encoder's output, as long as the encoder's input."""


@dataclass(frozen=True, slots=True)
class AttentionCache:
    """Keys and values of one attention layer, one pair a token and KV head."""

    kind: AttentionKind
    kv_heads: int
    """KV heads of the whole model, before tensor parallelism."""
    head_size: int
    head_size_v: int
    window: int | None = None
    """Tokens that a SLIDING layer looks back, or the chunk of a CHUNKED one."""
    sinks: bool = False
    """The layer has learned attention sinks (gpt-oss), which not every backend supports."""
    inclusive_window: bool = False
    """The model's ``window`` leaves out the current token (Cohere 2); newer vLLM releases add it."""


@dataclass(frozen=True, slots=True)
class MlaCache:
    """One latent vector a token (DeepSeek's multi-head latent attention), the same on every TP rank."""

    kv_lora_rank: int
    rope_size: int
    sparse: bool = False
    """The layer attends through an indexer (DeepSeek-V3.2, GLM-5)."""
    window: int | None = None
    compress_ratio: int = 1
    """Tokens that share one stored state (DeepSeek-V4)."""


@dataclass(frozen=True, slots=True)
class IndexerCache:
    """Keys of a sparse-attention indexer: one vector a token, scales included."""

    head_size: int
    compress_ratio: int = 1
    dtype: str = "uint8"


@dataclass(frozen=True, slots=True)
class CompressorCache:
    """float32 states of DeepSeek-V4's compressor, in a sliding window with a block size of its own."""

    head_size: int
    window: int
    block_size: int


class StateKind(StrEnum):
    """Families of recurrent layers, which keep a state of fixed size for each sequence."""

    MAMBA1 = "mamba1"
    MAMBA2 = "mamba2"
    GATED_DELTA_NET = "gdn_attention"
    KDA = "kda"
    SHORT_CONV = "short_conv"
    LINEAR = "linear_attention"


@dataclass(frozen=True, slots=True)
class StateCache:
    """The recurrent state of one layer. Which numbers are used depends on ``kind``.

    MAMBA1: ``inner`` x ``state_size`` and a convolution of ``conv_kernel`` over ``inner``.
    MAMBA2: ``heads`` x ``head_size`` x ``state_size``; convolution over inner + 2 x groups x state_size.
    GATED_DELTA_NET, KDA: ``heads`` value heads of ``head_size``, ``key_heads`` key heads of ``key_size``.
    SHORT_CONV: convolution of ``conv_kernel`` over ``inner``.
    LINEAR: ``heads`` x ``head_size`` x ``head_size``.
    """

    kind: StateKind
    inner: int = 0
    heads: int = 0
    head_size: int = 0
    state_size: int = 0
    groups: int = 1
    key_heads: int = 0
    key_size: int = 0
    conv_kernel: int = 0
    state_dtype: str | None = None
    """dtype that the model's own config asks for its recurrent state (``mamba_ssm_dtype``), if any."""
    chunk_size: int | None = None


Cache = AttentionCache | MlaCache | IndexerCache | CompressorCache | StateCache


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """One cache that vLLM allocates: the decoder layer that owns it and what it holds."""

    index: int
    """Number of the decoder layer; drafts of multi-token prediction count on from the last."""
    cache: Cache
    name: str = ""
    """vLLM's module path below the layer, e.g. ``self_attn.attn`` (orders equal layers)."""


@dataclass(frozen=True, slots=True)
class Rope:
    """The fields of the rotary embedding that decide the longest context."""

    rope_type: str = "default"
    factor: float = 1.0
    original_max_position_embeddings: int | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of a mixture-of-experts model (zero routed experts: dense)."""

    routed: int = 0
    per_token: int = 0
    intermediate_size: int = 0
    shared_intermediate_size: int = 0
    layers: int = 0
    """Decoder layers that have routed experts."""


@dataclass(frozen=True, slots=True)
class VisionTower:
    """What the multimodal encoder's profiling needs to know."""

    hidden_size: int
    layers: int
    patch_size: int
    image_size: int | None = None
    """Side in pixels where the tower takes one size only."""
    tokens_per_item: int | None = None
    """Language tokens that the largest image becomes, where the config fixes it."""
    spatial_merge_size: int = 1
    kind: str = ""
    """The whole model's type, which decides how large the largest item is."""
    intermediate_size: int = 0
    gated: bool = False
    """The tower's feed-forward layers have a gate."""
    values_per_patch: int = 0
    """Numbers that the processor hands over for one patch."""
    output_copies: int = 1
    """Vectors of the language model's width for each token: more than one with deepstack."""


@dataclass(frozen=True, eq=False)
class ModelShape:
    """A model's architecture, ready for arithmetic. Compared and hashed by identity."""

    name: str
    architecture: str
    model_type: str
    dtype: str
    """torch's name of the dtype that the checkpoint declares: ``bfloat16``, ``float16``, ``float32``."""
    layers: int
    hidden_size: int
    vocab_size: int
    heads: int
    """Attention heads (0 when no layer attends)."""
    kv_heads: int
    head_size: int
    intermediate_size: int
    """Width of the dense feed-forward layer; of one expert where every layer is routed."""
    caches: tuple[CacheLayer, ...]
    """In the order in which vLLM lists them; layers that share another's cache are left out."""
    draft_caches: tuple[CacheLayer, ...] = ()
    """Caches of the checkpoint's own multi-token-prediction layers, allocated only when they speculate."""
    tensors: tuple[Tensor, ...] = ()
    draft_tensors: tuple[Tensor, ...] = ()
    """Weights of the multi-token-prediction layers, loaded only when they speculate."""
    quantization: Quantization | None = None
    """How the checkpoint is stored, None for plain weights."""
    experts: Experts = field(default_factory=Experts)
    vision: VisionTower | None = None
    mla: MlaCache | None = None
    q_lora_rank: int = 0
    v_head_size: int = 0
    position_limits: tuple[tuple[str, int], ...] = ()
    """Fields of the config that limit the context, as (name, tokens), in vLLM's order of reading."""
    rope: Rope = field(default_factory=Rope)
    sliding_window: int | None = None
    tied_embeddings: bool = False
    is_pooling: bool = False
    """An embedding or reward model: no sampler, no decode."""
    is_encoder_decoder: bool = False
    encoder_len: int = 0
    is_prefix_lm_multimodal: bool = False
    """Image tokens attend to each other (Gemma 3), which only some backends can do."""
    kv_cache_dtype_hint: str | None = None
    """KV dtype that the checkpoint's quantisation config asks for: ``fp8`` or ``nvfp4``."""
    total_params: int = 0
    """Parameters, tied weights once, without multi-token-prediction layers."""
    assumptions: tuple[str, ...] = ()
    """What had to be guessed; empty for a known architecture."""
    source: str = ""
    """Where the config came from, for people."""
    checkpoint_bytes: int | None = None
    """Bytes of the checkpoint's tensors by its safetensors headers, where they could be read."""
    checkpoint_bytes_by_dtype: tuple[tuple[str, int], ...] = ()
    """The same by safetensors dtype (``BF16``, ``F8_E4M3``, ...), where the headers say."""
    unread_quantization: str = ""
    """The quantisation method that the config names where nothing is known of it; its weights count as plain."""
    qk_nope_head_size: int = 0
    """Width of a latent-attention head without its rotary part (0: not latent, or not said)."""

    @cached_property
    def is_moe(self) -> bool:
        """Whether any layer has routed experts."""
        return self.experts.routed > 0

    @cached_property
    def has_state(self) -> bool:
        """Whether any layer keeps a recurrent state."""
        return any(isinstance(layer.cache, StateCache) for layer in self.caches)

    @cached_property
    def is_hybrid(self) -> bool:
        """Whether the model mixes recurrent state with attention."""
        return self.has_state and any(not isinstance(layer.cache, StateCache) for layer in self.caches)
