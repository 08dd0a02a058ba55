"""What vLLM makes of the arguments: every value that decides memory, filled in."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.vllm.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The resolved configuration of one launch, in vLLM's names.

    Lengths and counts are tokens and sequences; byte fields end in ``_bytes``.
    """

    rules: Rules
    engine: str
    """``V1``, or ``V0`` for the releases and requests that still ran it."""
    max_model_len: int
    derived_max_model_len: int
    """The longest context that the model's config allows, and vLLM's default."""
    derived_from: str
    """The config field that gave it, as vLLM names it in its error."""
    auto_max_model_len: bool
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    dtype: str
    """``bfloat16``, ``float16`` or ``float32``."""
    kv_cache_dtype: str
    """``auto`` resolved to what the checkpoint asks for, else ``auto``."""
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    mamba_cache_mode: str
    """``none``, ``align`` or ``all``."""
    async_scheduling: bool
    max_concurrent_batches: int
    model_runner: str
    """``V1`` or ``V2``: vLLM's model runner, not its engine."""
    is_pooling: bool
    speculative_tokens: int
    """0 without speculative decoding."""
    uses_own_draft: bool
    """The speculator is the checkpoint's own multi-token-prediction layer."""
    capture_sizes: tuple[int, ...]
    """Batch sizes captured as CUDA graphs, empty with ``--enforce-eager``."""
    cudagraph_mode: str
    """``NONE``, ``PIECEWISE``, ``FULL_AND_PIECEWISE``, ..."""
    hybrid_manager: bool
    """Whether layers with windows or states get groups of their own."""
    notes: tuple[str, ...] = ()
    """What was resolved in a way the user may not expect, one sentence each."""
