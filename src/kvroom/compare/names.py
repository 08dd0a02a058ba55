"""The settings that are compared, their order, and how they are called in a sentence."""

from __future__ import annotations

from kvroom.units import KIB, MIB, show_bytes

ORDER = (
    "version",
    "engine",
    "model",
    "device",
    "total_bytes",
    "gpus",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "dtype",
    "quantization",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "prefill_context_parallel_size",
    "enable_expert_parallel",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "kv_cache_dtype",
    "attention_backend",
    "enforce_eager",
    "cudagraph_mode",
    "graph_estimate",
    "free_bytes",
    "block_size",
    "num_gpu_blocks_override",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "speculative_config",
    "enable_lora",
    "max_loras",
    "max_lora_rank",
    "limit_mm_per_prompt",
    "language_model_only",
    "skip_mm_profiling",
    "hf_overrides",
    "disable_hybrid_kv_cache_manager",
    "mamba_block_size",
    "mamba_cache_mode",
    "mamba_cache_dtype",
    "mamba_ssm_cache_dtype",
    "cpu_offload_gb",
    "swap_space",
    "kv_offloading_size",
    "kv_transfer_config",
    "compilation_config",
    "cudagraph_capture_sizes",
    "max_cudagraph_capture_size",
)
"""First what decides most; what is not listed comes after it."""
SIZES = frozenset({"total_bytes", "free_bytes", "kv_cache_memory_bytes"})
NOT_COMPARED = frozenset({"served_model_name", "trust_remote_code", "model_tag", "revision", "config", "load_format"})
"""Arguments that decide no memory of their own."""
_SPOKEN = {
    "version": "vLLM's version",
    "engine": "the engine",
    "model": "the model",
    "device": "the card",
    "total_bytes": "the card's total memory",
    "gpus": "the number of GPUs",
    "attention_backend": "the attention backend",
    "cudagraph_mode": "the graph mode",
    "graph_estimate": "the graph estimate",
    "free_bytes": "the free memory at start",
}
_ENTRIES = {
    "weights": "the size of the weights",
    "activation": "the activation peak",
    "requested": "the requested memory",
    "other": "other (non-torch) memory",
    "rest": "activation and other memory",
    "cuda_graphs": "the CUDA graph estimate",
    "available": "memory for the KV cache",
    "bytes_per_token": "the memory of one token",
    "tokens": "the pool",
    "num_blocks": "the pool",
    "max_concurrency": "the concurrency",
    "needed_bytes": "the need of one full-length request",
    "free_bytes": "the free memory at start",
}


def spoken(name: str) -> str:
    """The setting ``name`` in a sentence: ``the attention backend``, ``--max-num-seqs``, ``VLLM_USE_V1``."""
    if name.isupper():
        return name
    return _SPOKEN.get(name) or "--" + name.replace("_", "-")


def spoken_entry(name: str) -> str:
    """The entry ``name`` in a sentence."""
    return _ENTRIES.get(name, name)


def rank(name: str) -> tuple[int, str]:
    """Where ``name`` stands in the order."""
    return (ORDER.index(name) if name in ORDER else len(ORDER)), name


def show_value(name: str, value: object) -> str:
    """The value of a setting for people, of one line and not too long."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if name in SIZES and isinstance(value, int | float):
        return show_bytes(value)
    if isinstance(value, int) and abs(value) < 10**15:
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    text = " ".join(str(value).split())
    return text if len(text) <= 120 else text[:117] + "..."


def show_figure(name: str, value: float, *, signed: bool = False) -> str:
    """A figure of the ledger or the pool for people."""
    sign = "+" if signed and value > 0 else ""
    if name == "max_concurrency":
        return f"{sign}{value:.2f}x"
    if name in {"num_blocks", "tokens"}:
        return f"{sign}{value:,.0f}"
    if name == "bytes_per_token" and abs(value) < MIB:
        return f"{sign}{value / KIB:.1f} KiB"
    return f"{sign}{show_bytes(value)}"
