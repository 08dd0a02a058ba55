"""A ``vllm serve`` command line after parsing, before vLLM fills in what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArgs:
    """What the user said, under vLLM's own names; None is "left to vLLM's default".

    Only the arguments that move memory or decide a refusal are fields; the rest are in ``passed``.
    """

    model: str = ""
    served_model_name: str | None = None
    revision: str | None = None
    hf_overrides: Mapping[str, Any] = field(default_factory=dict)
    """``--hf-overrides`` merged with ``--rope-scaling`` and ``--rope-theta``."""
    runner: str | None = None
    """``generate`` or ``pooling``; ``--task embed`` and its relatives are read as pooling."""
    dtype: str | None = None
    quantization: str | None = None
    load_format: str | None = None
    trust_remote_code: bool = False
    max_model_len: int | None = None
    """-1 for ``auto``."""
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    kv_cache_dtype: str | None = None
    kv_cache_dtype_skip_layers: tuple[str, ...] = ()
    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_chunked_prefill: bool | None = None
    enable_prefix_caching: bool | None = None
    disable_sliding_window: bool = False
    disable_hybrid_kv_cache_manager: bool | None = None
    mamba_block_size: int | None = None
    mamba_cache_mode: str | None = None
    mamba_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    distributed_executor_backend: str | None = None
    async_scheduling: bool | None = None
    enforce_eager: bool = False
    attention_backend: str | None = None
    """From the flag or, where the release reads it, ``VLLM_ATTENTION_BACKEND``."""
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    max_cudagraph_capture_size: int | None = None
    cudagraph_mode: str | None = None
    compilation_mode: int | None = None
    """0 to 3: the mode in ``--compilation-config``, or the one that ``-O`` stands for in the release."""
    performance_mode: str | None = None
    speculative_config: Mapping[str, Any] | None = None
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    limit_mm_per_prompt: Mapping[str, Any] | None = None
    language_model_only: bool = False
    skip_mm_profiling: bool = False
    swap_space: float | None = None
    cpu_offload_gb: float = 0.0
    kv_offloading_size: float | None = None
    kv_transfer_config: Mapping[str, Any] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """The ``VLLM_*``, ``HF_*``, ``CUDA_*`` and ``PYTORCH_*`` variables of the launch."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Every memory-moving flag that was written, by vLLM's name, as parsed."""
    passed: tuple[str, ...] = ()
    """Flags that do not move memory, kept as they were written."""
    unknown: tuple[str, ...] = ()
    """Flags that this release does not have."""
