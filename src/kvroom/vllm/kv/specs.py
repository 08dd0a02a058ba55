"""From a model and the launch settings to what each layer stores on one rank.

Mirrors the layers' get_kv_cache_spec (v1/worker/gpu_model_runner.py: get_kv_cache_spec to 0.10) and
the backends' customize_spec.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from kvroom.errors import EngineError
from kvroom.models.shape import (
    AttentionCache,
    AttentionKind,
    Cache,
    CacheLayer,
    CompressorCache,
    IndexerCache,
    MlaCache,
    ModelShape,
    StateCache,
    StateKind,
)
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.kv.blocks import (
    KernelSizes,
    align_dtypes,
    align_hybrid,
    kernel_sizes,
    primary_block,
    window_block,
)
from kvroom.vllm.kv.formats import (
    DS_MLA_BYTES,
    attention_bytes,
    latent_bytes,
    quantization,
    sparse_format,
    storage_dtype,
)
from kvroom.vllm.kv.groups import Layer
from kvroom.vllm.kv.pages import DTYPE_BYTES, Spec, SpecKind, state_bytes
from kvroom.vllm.kv.state_shapes import state_dtypes, state_shapes
from kvroom.vllm.parallel import kv_heads_per_rank
from kvroom.vllm.rules import Rules
from kvroom.vllm.settings import Settings

V4_ROW_BYTES = 584
"""DeepSeek-V4: 448 bytes without position, 128 with, 8 of scales (models/deepseek_v4/attention.py)."""
V4_ALIGNMENT = {True: 576, False: 512}
"""What pages are rounded up to: packed fp8 rows, plain rows."""
V4_WINDOW_BLOCK = 64
FORMS = {AttentionKind.FULL: "full", AttentionKind.SLIDING: "sliding"}
KINDS = {
    AttentionKind.FULL: SpecKind.FULL,
    AttentionKind.SLIDING: SpecKind.SLIDING,
    AttentionKind.CHUNKED: SpecKind.CHUNKED,
    AttentionKind.CROSS: SpecKind.CROSS,
}


@dataclass(frozen=True, slots=True)
class Specs:
    """What every layer of the model stores on a rank, and the block sizes behind it."""

    layers: tuple[Layer, ...]
    block_size: int
    sizes: KernelSizes
    notes: tuple[str, ...] = ()
    """Lines that vLLM logs while choosing block sizes."""


def specs_of(
    shape: ModelShape,
    args: EngineArgs,
    settings: Settings,
    backend: str,
    backend_block_size: int | None,
    *,
    draft: ModelShape | None = None,
    capability: tuple[int, int] | None = None,
) -> Specs:
    """The specs of ``shape`` and of the draft layers that speculation adds, in vLLM's order.

    ``capability`` is the CUDA compute capability, which a few block sizes and kernels depend on.
    Raises EngineError where vLLM refuses the combination.
    """
    builder = _Builder(shape, args, settings, backend, backend_block_size, capability)
    layers = [builder.layer(layer) for layer in shape.caches]
    if settings.uses_own_draft:
        layers += [builder.layer(layer) for layer in shape.draft_caches]
    if draft is not None:
        shift = max(shape.layers, 1 + max((layer.index for layer in shape.caches), default=-1))
        layers += [builder.layer(CacheLayer(shift + layer.index, layer.cache, layer.name)) for layer in draft.caches]
    return Specs(tuple(layers), builder.block, builder.sizes, builder.notes)


def skipped_layers(shape: ModelShape, args: EngineArgs, settings: Settings) -> frozenset[str]:
    """The layers that keep the model's dtype: those asked for, and the outermost ones under TurboQuant.

    Mirrors layers/quantization/turboquant/config.py: get_boundary_skip_layers.
    """
    skipped = set(args.kv_cache_dtype_skip_layers)
    edge: int = settings.rules["kv_turboquant_edge"]
    if settings.kv_cache_dtype.startswith("turboquant_") and edge and not shape.is_hybrid:
        count = shape.layers
        edge = min(edge, count // 2)
        skipped |= {str(i) for i in (*range(edge), *range(count - edge, count))}
    return frozenset(skipped)


def is_skipped(layer: CacheLayer, skipped: frozenset[str]) -> bool:
    """Whether ``layer`` is among the ``skipped`` ones, by its number or by its kind."""
    if not skipped or not isinstance(layer.cache, AttentionCache):
        return False
    slides = layer.cache.kind is AttentionKind.SLIDING and "sliding_window" in skipped
    return slides or str(layer.index) in skipped


class _Builder:
    """The launch's block sizes and dtypes, and specs by cache (equal caches share one)."""

    def __init__(
        self,
        shape: ModelShape,
        args: EngineArgs,
        settings: Settings,
        backend: str,
        backend_block_size: int | None,
        capability: tuple[int, int] | None,
    ) -> None:
        self.shape, self.args, self.settings, self.backend = shape, args, settings, backend
        self.rules: Rules = settings.rules
        self.tp = args.tensor_parallel_size
        self.capability = capability
        self.cache_dtype = settings.kv_cache_dtype
        if self.cache_dtype in self.rules["kv_formats_unknown"]:
            raise EngineError(
                f"The layout of --kv-cache-dtype {self.cache_dtype} is not modelled.",
                "Use another KV cache dtype to plan with.",
            )
        turboquant = self.cache_dtype.startswith("turboquant_")
        if turboquant and shape.is_hybrid and self.rules["kv_turboquant_hybrid_text"]:
            raise EngineError(self.rules["kv_turboquant_hybrid_text"], "Use another --kv-cache-dtype, or vLLM 0.21.0.")
        self.sizes = kernel_sizes(backend, backend_block_size, self.rules)
        self.block = primary_block(args.block_size, backend_block_size, backend, self.sizes, self.rules)
        self.mode = self._mode()
        own_modes = self.rules["kv_state_modes"] == "own"
        self.state_block = self.block if own_modes and self.mode != "none" else settings.max_model_len
        if args.mamba_block_size is not None and self.mode != "none":
            self.state_block = args.mamba_block_size
        self.state_page: int | None = None
        self.shared_page: int | None = None
        self.notes: tuple[str, ...] = ()
        self.skipped = skipped_layers(shape, args, settings)
        if shape.is_hybrid:
            self._align_states()
        if self.skipped and self.rules["kv_aligns_dtypes"]:
            self._align_dtypes()
        self.strided = backend in self.rules["kv_stride_backends"]
        self._known: dict[tuple[Cache, bool], Spec] = {}

    def layer(self, layer: CacheLayer) -> Layer:
        """The layer's index and spec."""
        plain = self._is_skipped(layer)
        key = (layer.cache, plain)
        if key not in self._known:
            self._known[key] = self._spec(layer.cache, "auto" if plain else self.cache_dtype)
        return Layer(layer.index, self._known[key])

    def _spec(self, cache: Cache, cache_dtype: str) -> Spec:
        if isinstance(cache, AttentionCache):
            return self._attention(cache, cache_dtype)
        if isinstance(cache, MlaCache):
            return self._latent(cache, cache_dtype)
        if isinstance(cache, IndexerCache):
            return self._indexer(cache)
        if isinstance(cache, CompressorCache):
            return self._compressor(cache)
        return self._state(cache)

    def _attention(self, cache: AttentionCache, cache_dtype: str) -> Spec:
        kind = cache.kind
        if self.args.disable_sliding_window and kind is AttentionKind.SLIDING and self._all_slide:
            kind = AttentionKind.FULL
        if kind is AttentionKind.CHUNKED and not self.rules["kv_knows_chunks"]:
            kind = AttentionKind.FULL
        heads = kv_heads_per_rank(cache.kv_heads, self.tp)
        form = FORMS.get(kind, "other")
        size_v = cache.head_size_v if form != "other" else cache.head_size
        unit, in_full = (
            attention_bytes(heads, cache.head_size, size_v, cache_dtype, self.settings.dtype, as_, self.rules)
            for as_ in (form, "full")
        )
        block, padded, window, extra = self.block, None, None, 0
        if kind is AttentionKind.SLIDING:
            window = (cache.window or 0) + (cache.inclusive_window and self.rules["kv_inclusive_window"])
            block = window_block(block, unit, self.shared_page, self.sizes, self.rules)
            padded = self.shared_page
            extra = self._extra_tokens
        elif kind is AttentionKind.CHUNKED:
            window = cache.window
        elif kind is AttentionKind.CROSS:
            batched = self.rules["kv_encoder_tokens"] == "batched"
            window = self.settings.max_num_batched_tokens if batched else self.shape.encoder_len
        dtype = storage_dtype(cache_dtype, self.settings.dtype)
        return Spec(
            KINDS[kind],
            block,
            unit,
            page_padded=padded,
            window=window,
            extra_tokens=extra,
            strided=self.strided,
            promoted_unit=in_full if in_full != unit else 0,
            identity=(heads, cache.head_size, size_v, dtype, quantization(cache_dtype)),
        )

    def _latent(self, cache: MlaCache, cache_dtype: str) -> Spec:
        size = cache.kv_lora_rank + cache.rope_size
        if self._is_v4:
            return self._compressed(cache, size, cache_dtype)
        if cache.sparse:
            cache_dtype = sparse_format(cache_dtype, self.backend, self.rules)
        unit = latent_bytes(size, cache_dtype, self.settings.dtype)
        kind = SpecKind.MLA if cache.window is None else SpecKind.SLIDING_MLA
        return Spec(kind, self.block, unit, window=cache.window, identity=("mla", size, cache_dtype))

    def _compressed(self, cache: MlaCache, size: int, cache_dtype: str) -> Spec:
        """DeepSeek-V4: a window of plain rows, or states that stand for ``compress_ratio`` tokens."""
        cache_dtype = self._v4_format(cache_dtype)
        packed = cache_dtype in DS_MLA_BYTES
        unit = V4_ROW_BYTES if packed else latent_bytes(size, cache_dtype, self.settings.dtype)
        identity = ("v4", size, cache_dtype)
        alignment = V4_ALIGNMENT[packed]
        if cache.window is not None:
            return Spec(
                SpecKind.SLIDING_MLA,
                V4_WINDOW_BLOCK,
                unit,
                alignment=alignment,
                window=cache.window,
                identity=identity,
            )
        return Spec(
            SpecKind.MLA,
            self.block,
            unit,
            tokens_per_state=cache.compress_ratio,
            alignment=alignment,
            identity=identity,
        )

    def _indexer(self, cache: IndexerCache) -> Spec:
        unit = latent_bytes(cache.head_size, "auto", cache.dtype)
        alignment = V4_ALIGNMENT[self._v4_format(self.cache_dtype) in DS_MLA_BYTES] if self._is_v4 else 0
        return Spec(
            SpecKind.MLA,
            self.block,
            unit,
            tokens_per_state=cache.compress_ratio,
            alignment=alignment,
            identity=("indexer", cache.head_size, cache.dtype),
        )

    def _compressor(self, cache: CompressorCache) -> Spec:
        packed = self._v4_format(self.cache_dtype) in DS_MLA_BYTES
        return Spec(
            SpecKind.SLIDING_MLA,
            cache.block_size,
            4 * cache.head_size,
            alignment=V4_ALIGNMENT[packed],
            window=cache.window,
            identity=("compressor", cache.head_size),
        )

    def _state(self, cache: StateCache) -> Spec:
        drafts = self.settings.speculative_tokens
        if drafts and not self.shape.architecture.startswith(tuple(self.rules["kv_states_speculate"])):
            raise EngineError(
                "Mamba with speculative decoding is not supported yet.",
                "Drop --speculative-config, or use vLLM 0.17.0 or newer.",
            )
        shapes = state_shapes(cache, self.tp, drafts, self.rules)
        dtypes = self._state_dtypes(cache)
        held = self.rules["kv_state_blocks"][self.mode]
        fixed = held["blocks"]
        if held["drafts"]:
            fixed += drafts
        if self.mode == "align" and self._checkpoints(cache):
            fixed += 1
        return Spec(
            SpecKind.MAMBA,
            self.state_block,
            state_bytes(shapes, dtypes),
            page_padded=self.state_page,
            fixed_blocks=fixed,
            grows=held["grows"],
            identity=(shapes, dtypes),
        )

    def _state_dtypes(self, cache: StateCache) -> tuple[str, ...]:
        of_cache = self.rules["kv_state_dtype_of_cache"]
        return state_dtypes(
            cache,
            conv=self.args.mamba_cache_dtype,
            recurrent=self.args.mamba_ssm_cache_dtype,
            dtype=storage_dtype(self.cache_dtype, self.settings.dtype) if of_cache else self.settings.dtype,
            architecture=self.shape.architecture,
            rules=self.rules,
        )

    def _checkpoints(self, cache: StateCache) -> bool:
        """Whether prefill may leave a checkpoint in a block of its own (num_prefill_checkpoint_blocks)."""
        for rule in self.rules["kv_state_checkpoints"]:
            if rule["kind"] != cache.kind.value:
                continue
            if rule["architectures"] and not self.shape.architecture.startswith(tuple(rule["architectures"])):
                continue
            if rule["majors"] is None:
                return True
            if self.capability is not None and self.capability[0] in rule["majors"]:
                return self.capability[0] == 9 or cache.key_size in (0, 128)
        return False

    # Block sizes of models that mix page sizes.

    def _align_states(self) -> None:
        states = [layer.cache for layer in self.shape.caches if isinstance(layer.cache, StateCache)]
        sizes = [
            state_bytes(
                state_shapes(each, self.tp, self.settings.speculative_tokens, self.rules),
                self._state_dtypes(each),
            )
            for each in dict.fromkeys(states)
        ]
        token_bytes, latent, wide = self._attention_token()
        checkpoint = 1
        if self.rules["kv_checkpoint_alignment"] and all(
            each.kind is StateKind.GATED_DELTA_NET and self._checkpoints(each) for each in states
        ):
            checkpoint = int(self.rules["kv_checkpoint_alignment"])
        aligned = align_hybrid(
            block=self.block,
            token_bytes=token_bytes,
            state_bytes=max(sizes),
            mode=self.mode,
            max_model_len=self.settings.max_model_len,
            backend=self.backend,
            sizes=self.sizes,
            latent=latent,
            wide_blackwell=wide,
            chunk=self.args.mamba_block_size
            or next((each.chunk_size for each in states if each.chunk_size), None)
            or self.rules["kv_state_chunk"],
            checkpoint=checkpoint,
            rules=self.rules,
        )
        self.block, self.state_block, self.state_page = aligned.block, aligned.state_block, aligned.state_page
        self.notes = aligned.notes

    def _attention_token(self) -> tuple[int, bool, bool]:
        """Bytes of one token in the attention layers, whether they are MLA, whether Blackwell needs 32."""
        first = next(layer.cache for layer in self.shape.caches if isinstance(layer.cache, AttentionCache | MlaCache))
        if isinstance(first, MlaCache):
            element = DTYPE_BYTES[storage_dtype(self.cache_dtype, self.settings.dtype)]
            return (first.kv_lora_rank + first.rope_size) * element, True, False
        heads = kv_heads_per_rank(first.kv_heads, self.tp)
        size = first.head_size
        dtype = self.settings.dtype
        token = attention_bytes(heads, size, size, self.cache_dtype, dtype, "full", self.rules)
        if self.cache_dtype.startswith("turboquant_") and self.args.kv_cache_dtype_skip_layers:
            token = lcm(token, attention_bytes(heads, size, size, "auto", dtype, "full", self.rules))
        wide = (
            size == 256
            and self.capability is not None
            and self.capability[0] == 10
            and self.args.attention_backend in (None, "FLASHINFER")
        )
        return token, False, wide

    def _align_dtypes(self) -> None:
        first = next((x.cache for x in self.shape.caches if isinstance(x.cache, AttentionCache)), None)
        if first is None:
            return
        heads, size, dtype = kv_heads_per_rank(first.kv_heads, self.tp), first.head_size, self.settings.dtype
        quantized = attention_bytes(heads, size, size, self.cache_dtype, dtype, "full", self.rules)
        if self.cache_dtype.startswith("turboquant_") and self.rules["kv_aligns_turboquant_unpacked"]:
            quantized = 2 * heads * size
        plain = attention_bytes(heads, size, size, "auto", dtype, "full", self.rules)
        shared = align_dtypes(self.block, quantized, plain, self.state_page, self.sizes)
        self.block, self.shared_page = shared.block, shared.page
        if self.state_page is not None and shared.page is not None:
            self.state_page = shared.page

    # Small decisions.

    def _mode(self) -> str:
        if self.rules["kv_state_modes"] == "none":
            return "none"
        if self.rules["kv_state_modes"] == "prefix_caching":
            return "all" if self.settings.enable_prefix_caching else "none"
        return self.settings.mamba_cache_mode

    def _is_skipped(self, layer: CacheLayer) -> bool:
        return is_skipped(layer, self.skipped)

    def _v4_format(self, cache_dtype: str) -> str:
        """DeepSeek-V4's rows are packed fp8, plain ones where a FlashInfer backend runs it.

        Mirrors models/deepseek_v4/attention.py: _resolve_dsv4_kv_cache_dtype.
        """
        if "FLASHINFER" in self.backend:
            return cache_dtype
        known = self.rules["kv_v4_formats"]
        if cache_dtype.startswith("fp8") or (cache_dtype == "auto" and known["auto_is_fp8"]):
            return "fp8_ds_mla"
        raise EngineError(known["refusal"].format(dtype=cache_dtype), "Pass --kv-cache-dtype fp8.")

    @property
    def _is_v4(self) -> bool:
        return any(isinstance(layer.cache, CompressorCache) for layer in self.shape.caches)

    @property
    def _all_slide(self) -> bool:
        return all(
            isinstance(layer.cache, AttentionCache) and layer.cache.kind is AttentionKind.SLIDING
            for layer in self.shape.caches
        )

    @property
    def _extra_tokens(self) -> int:
        """Tokens kept below a window for chains of multi-token-prediction modules."""
        if self.rules["kv_extra_retained"] == "none" or not self.settings.uses_own_draft:
            return 0
        modules = len({layer.index for layer in self.shape.draft_caches})
        drafts = self.settings.speculative_tokens
        return drafts - 1 if min(modules, drafts) > 1 else 0


__all__ = ["Specs", "specs_of"]
