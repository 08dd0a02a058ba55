"""What the specs of one launch depend on, and the small decisions that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.errors import EngineError
from kvroom.models.shape import AttentionCache, AttentionKind, CacheLayer, CompressorCache, ModelShape, StateCache
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.kv.blocks import KernelSizes
from kvroom.vllm.kv.formats import storage_dtype
from kvroom.vllm.kv.pages import state_bytes
from kvroom.vllm.kv.state_shapes import Shape, state_dtypes, state_shapes
from kvroom.vllm.rules import Rules
from kvroom.vllm.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """One model on one rank of one launch."""

    shape: ModelShape
    args: EngineArgs
    settings: Settings
    backend: str
    sizes: KernelSizes
    capability: tuple[int, int] | None = None
    """CUDA compute capability, which a few block sizes and kernels depend on."""

    @property
    def rules(self) -> Rules:
        """The rules of the release."""
        return self.settings.rules

    @property
    def tp(self) -> int:
        """Tensor-parallel ranks."""
        return self.args.tensor_parallel_size

    @property
    def cache_dtype(self) -> str:
        """``--kv-cache-dtype`` as resolved."""
        return self.settings.kv_cache_dtype

    @property
    def mode(self) -> str:
        """The Mamba cache mode that this release knows the launch by: ``none``, ``align`` or ``all``."""
        how = self.rules["kv_state_modes"]
        if how == "prefix_caching":
            return "all" if self.settings.enable_prefix_caching else "none"
        return self.settings.mamba_cache_mode if how == "own" else "none"

    @property
    def compresses(self) -> bool:
        """Whether the model is DeepSeek-V4 or its kin, which store several tokens as one state."""
        return any(isinstance(layer.cache, CompressorCache) for layer in self.shape.caches)

    @property
    def all_slide(self) -> bool:
        """Whether every layer looks back by a window."""
        return all(
            isinstance(layer.cache, AttentionCache) and layer.cache.kind is AttentionKind.SLIDING
            for layer in self.shape.caches
        )

    @property
    def extra_tokens(self) -> int:
        """Tokens kept below a window for chains of multi-token-prediction modules."""
        if self.rules["kv_extra_retained"] == "none" or not self.settings.uses_own_draft:
            return 0
        modules = len({layer.index for layer in self.shape.draft_caches})
        drafts = self.settings.speculative_tokens
        return drafts - 1 if min(modules, drafts) > 1 else 0

    def shapes(self, cache: StateCache) -> tuple[Shape, ...]:
        """The shapes of the recurrent states on this rank."""
        return state_shapes(cache, self.tp, self.settings.speculative_tokens, self.rules)

    def dtypes(self, cache: StateCache) -> tuple[str, ...]:
        """The dtypes of those shapes."""
        of_cache = self.rules["kv_state_dtype_of_cache"]
        return state_dtypes(
            cache,
            conv=self.args.mamba_cache_dtype,
            recurrent=self.args.mamba_ssm_cache_dtype,
            dtype=storage_dtype(self.cache_dtype, self.settings.dtype) if of_cache else self.settings.dtype,
            architecture=self.shape.architecture,
            rules=self.rules,
        )

    def state_bytes(self, cache: StateCache) -> int:
        """Bytes of the recurrent states of one layer and one sequence."""
        return state_bytes(self.shapes(cache), self.dtypes(cache))

    def checkpoints(self, cache: StateCache) -> bool:
        """Whether prefill may leave a checkpoint in a block of its own (num_prefill_checkpoint_blocks)."""
        for rule in self.rules["kv_state_checkpoints"]:
            if rule["kind"] != cache.kind.value:
                continue
            if rule["architectures"] and not self.shape.architecture.startswith(tuple(rule["architectures"])):
                continue
            if rule["majors"] is None:
                return True
            if self.capability is not None and self.capability[0] in rule["majors"]:
                return self.capability[0] == 9 or cache.key_size in {0, 128}
        return False

    def check(self) -> None:
        """Raises EngineError for a KV cache dtype that cannot be planned, or that the release refuses."""
        if self.cache_dtype in self.rules["kv_formats_unknown"]:
            raise EngineError(
                f"The layout of --kv-cache-dtype {self.cache_dtype} is not modelled.",
                "Use another KV cache dtype to plan with.",
            )
        refusal = self.rules["kv_turboquant_hybrid_text"]
        if refusal and self.cache_dtype.startswith("turboquant_") and self.shape.is_hybrid:
            raise EngineError(refusal, "Use another --kv-cache-dtype, or vLLM 0.21.0.")


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
