"""Random launches: models of every kind that vLLM plans, settings, and the bytes there are.

A ``Launch`` is asked twice: of kvroom, and of vLLM as a ``question`` for server.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

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
from kvroom.vllm.kv.blocks import kernel_sizes
from kvroom.vllm.kv.context import is_skipped, skipped_layers
from kvroom.vllm.kv.formats import sparse_format, storage_dtype
from kvroom.vllm.kv.layout import KvLayout, layout_of
from kvroom.vllm.kv.state_shapes import state_dtypes, state_shapes
from kvroom.vllm.parallel import stage_layers
from kvroom.vllm.releases import Release
from kvroom.vllm.rules import OLDEST, Rules
from kvroom.vllm.settings import Settings

HEAD_SIZES = (32, 64, 80, 96, 128, 256)
WINDOWS = (128, 512, 1024, 4096, 8192)
FAMILIES = (
    "uniform",
    "all_sliding",
    "sliding",
    "two_windows",
    "chunked",
    "unequal",
    "uneven_heads",
    "drafted",
    "latent",
    "sparse",
    "hybrid",
    "latent_hybrid",
    "states",
    "encoder_decoder",
    "compressed",
)
PLAIN_FAMILIES = ("uniform", "sliding", "all_sliding", "unequal", "hybrid")
STATES = {
    StateKind.MAMBA1: "mamba1_state_shape",
    StateKind.MAMBA2: "mamba2_state_shape",
    StateKind.GATED_DELTA_NET: "gated_delta_net_state_shape",
    StateKind.KDA: "kda_state_shape",
    StateKind.SHORT_CONV: "short_conv_state_shape",
    StateKind.LINEAR: "linear_attention_state_shape",
}

STATES_SINCE = {StateKind.KDA: Release(0, 11, 1)}


@dataclass(frozen=True)
class Launch:
    """One launch, and how many bytes each pipeline stage has for it."""

    family: str
    shape: ModelShape
    args: EngineArgs
    settings: Settings
    backend: str
    preferred: int | None
    available: tuple[int, ...]

    def layouts(self) -> tuple[KvLayout, ...]:
        """kvroom's layout of every stage. Raises EngineError where kvroom says that vLLM refuses."""
        return tuple(
            layout_of(self.shape, self.args, self.settings, self.backend, self.preferred, stage=stage)
            for stage in range(self.args.pipeline_parallel_size)
        )

    def question(self) -> dict[str, Any]:
        """The launch in server.py's words."""
        settings, args, rules = self.settings, self.args, self.settings.rules
        caches = list(dict.fromkeys(layer.cache for layer in self.shape.caches))
        states = next((cache for cache in caches if isinstance(cache, StateCache)), None)
        sizes = kernel_sizes(self.backend, self.preferred, rules)
        multiple = [] if sizes.multiple_of is None else [f"{sizes.multiple_of}*"]
        stages = stage_layers(self.shape.layers, args.pipeline_parallel_size, None, rules["pp_remainder"])
        skipped = skipped_layers(self.shape, args, settings)
        batched = rules["kv_encoder_tokens"] == "batched"
        return {
            "caches": [self._cache(cache) for cache in caches],
            "layers": [
                [layer.index, caches.index(layer.cache), is_skipped(layer, skipped)] for layer in self.shape.caches
            ],
            "skipped": sorted(skipped),
            "decoder_layers": self.shape.layers,
            "stages": [list(stage) for stage in stages],
            "tp": args.tensor_parallel_size,
            "dtype": settings.dtype,
            "kv_cache_dtype": settings.kv_cache_dtype,
            "backend": self.backend,
            "strided": self.backend in rules["kv_stride_backends"],
            "kernel_sizes": [*sizes.exact, *multiple],
            "block_size": args.block_size or self.preferred or 16,
            "mode": _mode(settings),
            "prefix_caching": settings.enable_prefix_caching,
            "own_modes": rules["kv_state_modes"] == "own",
            "chunk": (states and states.chunk_size) or 2048,
            "max_model_len": settings.max_model_len,
            "batched": settings.max_num_batched_tokens,
            "batches": settings.max_concurrent_batches,
            "auto": settings.auto_max_model_len,
            "override": args.num_gpu_blocks_override,
            "hybrid": settings.hybrid_manager,
            "dcp": args.decode_context_parallel_size,
            "pcp": args.prefill_context_parallel_size,
            "drafts": settings.speculative_tokens,
            "encoder_tokens": settings.max_num_batched_tokens if batched else self.shape.encoder_len,
            "packed": self.family == "compressed" or "VLLM_KV_CACHE_LAYOUT" in args.env,
            "available": list(self.available),
        }

    def _cache(self, cache: Cache) -> dict[str, Any]:
        if isinstance(cache, AttentionCache):
            return {
                "kind": str(cache.kind),
                "kv_heads": cache.kv_heads,
                "head_size": cache.head_size,
                "head_size_v": cache.head_size_v,
                "window": cache.window,
            }
        if self.family == "compressed":
            return self._compressed(cache)
        if isinstance(cache, MlaCache):
            stored = self.settings.kv_cache_dtype
            if cache.sparse:
                stored = sparse_format(stored, self.backend, self.settings.rules)
            size = cache.kv_lora_rank + cache.rope_size
            return {"kind": "mla", "head_size": size, "sparse": cache.sparse, "stored": stored}
        if isinstance(cache, IndexerCache):
            return {"kind": "mla", "head_size": cache.head_size, "indexer": True}
        assert isinstance(cache, StateCache)
        return self._state(cache)

    @staticmethod
    def _compressed(cache: Cache) -> dict[str, Any]:
        """A cache of DeepSeek-V4 in server.py's words."""
        asked = {"kind": "compressed", "ratio": 1, "window": None, "block": None, "dtype": "uint8", "rows": False}
        if isinstance(cache, CompressorCache):
            own = {"dtype": "float32", "window": cache.window, "block": cache.block_size}
            return {**asked, **own, "head_size": cache.head_size}
        if isinstance(cache, IndexerCache):
            return {**asked, "head_size": cache.head_size, "ratio": cache.compress_ratio}
        assert isinstance(cache, MlaCache)
        size = cache.kv_lora_rank + cache.rope_size
        block = None if cache.window is None else 64
        own = {"window": cache.window, "block": block, "ratio": cache.compress_ratio, "rows": True}
        return {**asked, **own, "head_size": size}

    def _state(self, cache: StateCache) -> dict[str, Any]:
        rules, args = self.settings.rules, self.args
        dtype = self.settings.dtype
        if rules["kv_state_dtype_of_cache"]:
            dtype = storage_dtype(self.settings.kv_cache_dtype, dtype)
        dtypes = state_dtypes(
            cache,
            conv=args.mamba_cache_dtype,
            recurrent=args.mamba_ssm_cache_dtype,
            dtype=dtype,
            architecture="",
            rules=rules,
        )
        checked = any(rule["kind"] == cache.kind and not rule["majors"] for rule in rules["kv_state_checkpoints"])
        return {
            "kind": "state",
            "function": STATES[cache.kind],
            "values": {
                "intermediate_size": cache.inner,
                "n_groups": cache.groups,
                "num_heads": cache.heads,
                "head_dim": cache.head_size,
                "state_size": cache.state_size,
                "conv_kernel": cache.conv_kernel,
                "conv_kernel_size": cache.conv_kernel,
                "num_k_heads": cache.key_heads,
                "num_v_heads": cache.heads,
                "head_k_dim": cache.key_size,
                "head_v_dim": cache.head_size,
            },
            "shapes": state_shapes(cache, args.tensor_parallel_size, self.settings.speculative_tokens, rules),
            "dtypes": dtypes,
            "checkpoints": int(checked),
        }


def _mode(settings: Settings) -> str:
    how = settings.rules["kv_state_modes"]
    if how == "prefix_caching":
        return "all" if settings.enable_prefix_caching else "none"
    return settings.mamba_cache_mode if how == "own" else "none"


@st.composite
def launches(draw: st.DrawFn, rules: Rules) -> Launch:
    """A launch that the release of ``rules`` might be asked for."""
    family = draw(st.sampled_from([name for name in FAMILIES if _known(name, rules)]))
    tp = draw(st.sampled_from((1, 2, 4, 8)))
    shape = draw(_shapes(family, tp, rules.release))
    stages = draw(st.sampled_from((1, 1, 1, 2, 3))) if shape.layers >= 12 else 1
    if family in ("drafted", "encoder_decoder") or rules["kv_groups_per_worker"]:
        stages = 1
    settings = draw(_settings(family, rules))
    backend = (
        "FLASHMLA"
        if family in ("latent", "latent_hybrid")
        else draw(st.sampled_from(("FLASH_ATTN", "TRITON_ATTN", "FLASHINFER")))
    )
    if family == "sparse":
        backend = "FLASHMLA_SPARSE"
    preferred = 64 if backend.startswith("FLASHMLA") else None
    if family == "compressed":
        backend, preferred = "FLASHMLA_SPARSE_DSV4", 256
    parallel = family in ("uniform", "latent") and rules["kv_context_parallel"] != "none"
    skips = settings.kv_cache_dtype != "auto" and "nvfp4" in rules["kv_packs"] and family in PLAIN_FAMILIES
    skips = skips and any(isinstance(layer.cache, AttentionCache) for layer in shape.caches)
    packs = rules["kv_packing"] == "block_outermost" and draw(st.sampled_from((True, False, False)))
    args = EngineArgs(
        env={"VLLM_KV_CACHE_LAYOUT": "BLHNC"} if packs else {},
        kv_cache_dtype_skip_layers=draw(st.sampled_from(((), (), ("0",), ("1", "5"), ("sliding_window",))))
        if skips
        else (),
        tensor_parallel_size=tp,
        pipeline_parallel_size=stages,
        block_size=draw(st.sampled_from((None, None, 16, 32, 64, 128))) if preferred is None else None,
        num_gpu_blocks_override=draw(st.sampled_from((None, None, None, 1, 37, 1000, 50_000))),
        decode_context_parallel_size=draw(st.sampled_from((1, 1, 2, 4))) if parallel else 1,
        mamba_ssm_cache_dtype=draw(st.sampled_from((None, "float32"))) if rules["kv_state_modes"] == "own" else None,
    )
    launch = Launch(family, shape, args, settings, backend, preferred, ())
    return Launch(family, shape, args, settings, backend, preferred, draw(_bytes(launch)))


def _known(family: str, rules: Rules) -> bool:
    if family in ("hybrid", "latent_hybrid", "states"):
        return rules["kv_hybrid_alignment"] not in ("none", "pad_only")
    if family == "encoder_decoder":
        return bool(rules["kv_uniform_type"])
    if family == "compressed":
        return rules["kv_packing"] != "none"
    return True


@st.composite
def _bytes(draw: st.DrawFn, launch: Launch) -> tuple[int, ...]:
    """Bytes around what one request needs, where the decisions are."""
    stages = launch.args.pipeline_parallel_size
    try:
        layouts = launch.layouts()
        block = max(*(layout.bytes_per_block for layout in layouts), 1)
        request = max(layout.request_blocks(launch.settings.max_model_len) for layout in layouts)
    except Exception:
        block, request = 1 << 20, 1000
    result = []
    for _ in range(stages):
        blocks = draw(st.one_of(st.integers(-2, 12), st.integers(0, 3 * request), st.just(request)))
        result.append(blocks * block + draw(st.sampled_from((0, 0, 1, -1, block // 2, 4096))))
    return tuple(result)


@st.composite
def _settings(draw: st.DrawFn, family: str, rules: Rules) -> Settings:
    length = draw(st.one_of(st.integers(1, 400), st.integers(400, 20_000), st.sampled_from((32768, 131072, 1 << 20))))
    dtypes = ["auto", "auto", "fp8"]
    if rules["kv_packs"] and family in PLAIN_FAMILIES:
        dtypes += ["fp8_per_token_head", "int8_per_token_head"]
        dtypes += ["int4_per_token_head"] if "int4" in rules["kv_packs"] else []
        dtypes += ["nvfp4"]
        if family != "hybrid" or rules["kv_turboquant_hybrid_text"] is None:
            dtypes += ["turboquant_k8v4", "turboquant_3bit_nc"]
    if family == "compressed":
        dtypes = ["fp8"]
    modes = ["none", "align"]
    if rules.release < (0, 32, 0):
        modes.append("all")
    prefix = draw(st.booleans()) if rules["kv_state_modes"] == "prefix_caching" else False
    states = family in ("hybrid", "latent_hybrid", "states")
    return Settings(
        rules=rules,
        engine="V1",
        max_model_len=length,
        derived_max_model_len=length,
        derived_from="max_position_embeddings",
        auto_max_model_len=rules["kv_auto_fit_text"] is not None and draw(st.sampled_from((False, False, True))),
        gpu_memory_utilization=0.9,
        max_num_seqs=256,
        max_num_batched_tokens=draw(st.sampled_from((512, 2048, 8192, 8191, 16384))),
        dtype=draw(st.sampled_from(("bfloat16", "bfloat16", "float16", "float32"))),
        kv_cache_dtype="auto"
        if family == "sparse" and not rules["kv_sparse_formats"]
        else draw(st.sampled_from(dtypes)),
        enable_prefix_caching=prefix,
        enable_chunked_prefill=True,
        mamba_cache_mode=draw(st.sampled_from(modes)) if rules["kv_state_modes"] == "own" else "none",
        async_scheduling=False,
        max_concurrent_batches=draw(st.sampled_from((1, 2, 3))),
        model_runner="V1",
        is_pooling=False,
        speculative_tokens=draw(st.sampled_from((0, 0, 3))) if states and rules["kv_states_speculate"] == [""] else 0,
        uses_own_draft=False,
        capture_sizes=(),
        cudagraph_mode="NONE",
        hybrid_manager=draw(st.sampled_from((True, True, True, False))),
    )


@st.composite
def _shapes(draw: st.DrawFn, family: str, tp: int, release: Release) -> ModelShape:
    count = draw(st.integers(1, 40))
    heads = draw(st.sampled_from((1, 2, 4, 8, 16, 20)))
    size = draw(st.sampled_from(HEAD_SIZES))
    own_values = family in ("two_windows", "drafted") and release >= (0, 20, 0)
    size_v = draw(st.sampled_from((size, size // 2))) if own_values else size
    full = AttentionCache(AttentionKind.FULL, heads, size, size_v)
    window = draw(st.sampled_from(WINDOWS))
    sliding = AttentionCache(AttentionKind.SLIDING, heads, size, size_v, window)
    every = draw(st.integers(2, 7))
    latent = MlaCache(512, 64)
    caches: list[Cache] = [full] * count
    if family == "all_sliding":
        caches = [sliding] * count
    elif family in ("sliding", "two_windows", "unequal", "drafted"):
        other = sliding
        if family == "unequal":
            wider = size * draw(st.sampled_from((1, 2, 3)))
            more = heads * draw(st.sampled_from((1, 2, 4)))
            other = AttentionCache(AttentionKind.SLIDING, more, wider, wider, window)
        caches = [full if (i + 1) % every == 0 else other for i in range(count)]
        if family == "two_windows":
            last = AttentionCache(AttentionKind.SLIDING, heads, size, size_v, 2 * window)
            caches += [last] * draw(st.integers(1, 12))
        if family == "drafted":
            caches += [full] * draw(st.integers(1, 3))
    elif family == "chunked":
        chunk = AttentionCache(AttentionKind.CHUNKED, heads, size, size, window)
        caches = [full if (i + 1) % every == 0 else chunk for i in range(count)]
    elif family == "uneven_heads":
        caches = [AttentionCache(AttentionKind.FULL, heads << (i % 3), size, size) for i in range(count)]
    elif family == "encoder_decoder":
        caches = [each for _ in range(count) for each in (full, AttentionCache(AttentionKind.CROSS, heads, size, size))]
    elif family == "latent":
        caches = [latent] * count
    elif family in ("hybrid", "latent_hybrid", "states"):
        state = draw(_states(tp, release))
        attention = latent if family == "latent_hybrid" else full
        caches = [attention if (i + 1) % every == 0 and family != "states" else state for i in range(count)]
    layers = [CacheLayer(i, cache) for i, cache in enumerate(caches)]
    if family == "compressed":
        ratios = draw(st.lists(st.sampled_from((1, 4, 128)), min_size=3, max_size=60))
        layers = [CacheLayer(i, each) for i, ratio in enumerate([4, *ratios]) for each in _compressed_layer(ratio)]
    if family == "sparse":
        layers = [
            CacheLayer(i, each) for i in range(count) for each in (IndexerCache(132), MlaCache(512, 64, sparse=True))
        ]
    return ModelShape(
        name="random",
        architecture="",
        model_type="",
        dtype="bfloat16",
        layers=1 + layers[-1].index,
        hidden_size=1,
        vocab_size=1,
        heads=1,
        kv_heads=1,
        head_size=1,
        intermediate_size=1,
        caches=tuple(layers),
        encoder_len=draw(st.sampled_from((448, 1500))),
    )


def _compressed_layer(ratio: int) -> list[Cache]:
    """DeepSeek-V4's caches of one layer (models/families/latent.py)."""
    window = MlaCache(448, 64, sparse=True, window=128)
    if ratio == 1:
        return [window]
    states = MlaCache(448, 64, sparse=True, compress_ratio=ratio)
    overlap, block = (2, 4) if ratio == 4 else (1, 8)
    own: list[Cache] = [window, states, CompressorCache(2 * overlap * 512, overlap * ratio, block)]
    index: list[Cache] = [IndexerCache(132, ratio), CompressorCache(2 * overlap * 128, overlap * ratio, block)]
    return [*index, *own] if ratio == 4 else own


@st.composite
def _states(draw: st.DrawFn, tp: int, release: Release) -> StateCache:
    kind = draw(st.sampled_from([kind for kind in STATES if release >= STATES_SINCE.get(kind, OLDEST)]))
    heads = tp * draw(st.sampled_from((1, 2, 4, 8)))
    size = draw(st.sampled_from((64, 128)))
    return StateCache(
        kind,
        inner=heads * size,
        heads=heads,
        head_size=size,
        state_size=draw(st.sampled_from((16, 64, 128))),
        groups=draw(st.sampled_from((1, 8))) if kind is StateKind.MAMBA2 else 1,
        key_heads=heads if kind is StateKind.KDA else tp * draw(st.sampled_from((1, 2, 4))),
        key_size=size if kind is StateKind.KDA else draw(st.sampled_from((64, 128))),
        conv_kernel=4,
        chunk_size=draw(st.sampled_from((128, 256))) if kind is StateKind.MAMBA2 else None,
    )
