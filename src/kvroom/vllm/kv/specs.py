"""From a model and the launch settings to what each layer stores on one rank.

Mirrors the layers' get_kv_cache_spec (v1/worker/gpu_model_runner.py: get_kv_cache_spec to 0.10) and
the backends' customize_spec.
"""

from __future__ import annotations

from dataclasses import dataclass

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
)
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.kv.alignment import Blocks, blocks_of
from kvroom.vllm.kv.blocks import KernelSizes, kernel_sizes, primary_block, window_block
from kvroom.vllm.kv.compressed import Rows, row_format
from kvroom.vllm.kv.context import Context, is_skipped, skipped_layers
from kvroom.vllm.kv.formats import attention_bytes, latent_bytes, quantization, sparse_format, storage_dtype
from kvroom.vllm.kv.groups import Layer
from kvroom.vllm.kv.pages import Spec, SpecKind, state_bytes
from kvroom.vllm.parallel import kv_heads_per_rank
from kvroom.vllm.settings import Settings

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
    sizes = kernel_sizes(backend, backend_block_size, settings.rules)
    context = Context(shape, args, settings, backend, sizes, capability)
    context.check()
    skipped = skipped_layers(shape, args, settings)
    block = primary_block(args.block_size, backend_block_size, backend, sizes, settings.rules)
    blocks = blocks_of(context, block, skips=bool(skipped))
    builder = _Builder(context, blocks, skipped)
    layers = [builder.layer(layer) for layer in shape.caches]
    if settings.uses_own_draft:
        layers += [builder.layer(layer) for layer in shape.draft_caches]
    if draft is not None:
        shift = max(shape.layers, 1 + max((layer.index for layer in shape.caches), default=-1))
        layers += [builder.layer(CacheLayer(shift + layer.index, layer.cache, layer.name)) for layer in draft.caches]
    return Specs(tuple(layers), blocks.attention, sizes, blocks.notes)


class _Builder:
    """Specs by cache: equal caches share one."""

    def __init__(self, context: Context, blocks: Blocks, skipped: frozenset[str]) -> None:
        self.context, self.blocks, self.skipped = context, blocks, skipped
        self.rules = context.rules
        self.dtype = context.settings.dtype
        self.strided = context.backend in self.rules["kv_stride_backends"]
        self.rows: Rows | None = None
        if context.compresses:
            form = row_format(context.cache_dtype, context.backend, self.rules)
            self.rows = Rows(form, self.dtype, blocks.attention)
        self._known: dict[tuple[Cache, bool], Spec] = {}

    def layer(self, layer: CacheLayer) -> Layer:
        """The layer's index and spec."""
        plain = is_skipped(layer, self.skipped)
        key = (layer.cache, plain)
        if key not in self._known:
            self._known[key] = self._spec(layer.cache, "auto" if plain else self.context.cache_dtype)
        return Layer(layer.index, self._known[key])

    def _spec(self, cache: Cache, cache_dtype: str) -> Spec:
        if isinstance(cache, AttentionCache):
            return self._attention(cache, cache_dtype)
        if isinstance(cache, MlaCache):
            return self._latent(cache, cache_dtype) if self.rows is None else self.rows.latent(cache)
        if isinstance(cache, IndexerCache):
            return self._indexer(cache) if self.rows is None else self.rows.indexer(cache)
        if isinstance(cache, CompressorCache):
            assert self.rows is not None
            return self.rows.compressor(cache)
        return self._state(cache)

    def _attention(self, cache: AttentionCache, cache_dtype: str) -> Spec:
        context, rules = self.context, self.rules
        kind = cache.kind
        if context.args.disable_sliding_window and kind is AttentionKind.SLIDING and context.all_slide:
            kind = AttentionKind.FULL
        if kind is AttentionKind.CHUNKED and not rules["kv_knows_chunks"]:
            kind = AttentionKind.FULL
        heads = kv_heads_per_rank(cache.kv_heads, context.tp)
        form = FORMS.get(kind, "other")
        size_v = cache.head_size_v if form != "other" else cache.head_size
        full_v = cache.head_size if rules["kv_promotion_drops_value_size"] else size_v
        unit, in_full = (
            attention_bytes(heads, cache.head_size, values, cache_dtype, self.dtype, each, rules)
            for each, values in ((form, size_v), ("full", full_v))
        )
        block, padded, window, extra = self.blocks.attention, None, None, 0
        if kind is AttentionKind.SLIDING:
            window = (cache.window or 0) + (cache.inclusive_window and rules["kv_inclusive_window"])
            padded = self.blocks.shared_page
            block = window_block(block, unit, padded, context.sizes, rules)
            extra = context.extra_tokens
        elif kind is AttentionKind.CHUNKED:
            window = cache.window
        elif kind is AttentionKind.CROSS:
            batched = rules["kv_encoder_tokens"] == "batched"
            window = context.settings.max_num_batched_tokens if batched else context.shape.encoder_len
        stored = storage_dtype(cache_dtype, self.dtype)
        turboquant = cache_dtype.startswith("turboquant_")
        return Spec(
            KINDS[kind],
            block,
            unit,
            page_padded=padded,
            window=window,
            extra_tokens=extra,
            strided=self.strided,
            promoted_unit=in_full if kind is not AttentionKind.FULL and in_full != unit and not turboquant else 0,
            identity=(heads, cache.head_size, size_v, stored, quantization(cache_dtype)),
        )

    def _latent(self, cache: MlaCache, cache_dtype: str) -> Spec:
        size = cache.kv_lora_rank + cache.rope_size
        if cache.sparse:
            cache_dtype = sparse_format(cache_dtype, self.context.backend, self.rules)
        unit = latent_bytes(size, cache_dtype, self.dtype)
        kind = SpecKind.MLA if cache.window is None else SpecKind.SLIDING_MLA
        return Spec(kind, self.blocks.attention, unit, window=cache.window, identity=("mla", size, cache_dtype))

    def _indexer(self, cache: IndexerCache) -> Spec:
        unit = latent_bytes(cache.head_size, "auto", cache.dtype)
        identity = ("indexer", cache.head_size, cache.dtype)
        return Spec(SpecKind.MLA, self.blocks.attention, unit, tokens_per_state=cache.compress_ratio, identity=identity)

    def _state(self, cache: StateCache) -> Spec:
        context = self.context
        drafts = context.settings.speculative_tokens
        if drafts and not context.shape.architecture.startswith(tuple(self.rules["kv_states_speculate"])):
            raise EngineError(
                "Mamba with speculative decoding is not supported yet.",
                "Drop --speculative-config, or use vLLM 0.17.0 or newer.",
            )
        shapes, dtypes = context.shapes(cache), context.dtypes(cache)
        held = self.rules["kv_state_blocks"][context.mode]
        fixed = held["blocks"]
        if held["drafts"]:
            fixed += drafts
        if context.mode == "align" and context.checkpoints(cache):
            fixed += 1
        return Spec(
            SpecKind.MAMBA,
            self.blocks.state,
            state_bytes(shapes, dtypes),
            page_padded=self.blocks.state_page,
            fixed_blocks=fixed,
            grows=held["grows"],
            identity=(shapes, dtypes),
        )
