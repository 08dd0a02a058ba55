"""Which arguments matter here, which numbers they may hold, and the fields that they fill."""

from __future__ import annotations

from typing import Any

from kvroom.vllm.items import Item
from kvroom.vllm.rules import Rules
from kvroom.vllm.values import human_int, refuse

_POSITIVE = frozenset(
    {
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
        "max_num_seqs",
        "max_num_batched_tokens",
        "kv_cache_memory_bytes",
        "num_gpu_blocks_override",
        "block_size",
        "mamba_block_size",
        "max_loras",
        "max_lora_rank",
        "max_cudagraph_capture_size",
        "kv_offloading_size",
    }
)
_NOT_NEGATIVE = frozenset({"cpu_offload_gb", "swap_space", "rope_theta"})
_LARGEST_GRAPH = 1 << 20
_MOST = {
    **dict.fromkeys(("cpu_offload_gb", "swap_space", "kv_offloading_size", "mm_ipc_gpu_memory_gb"), 1 << 20),
    "max_cudagraph_capture_size": _LARGEST_GRAPH,
}
"""GiB and tokens beyond anything that exists; a larger value is a slip."""
_FIELDS = frozenset(
    {
        *_POSITIVE,
        *("cpu_offload_gb", "swap_space", "model", "revision", "dtype", "quantization", "load_format"),
        *("trust_remote_code", "max_model_len", "gpu_memory_utilization", "kv_cache_dtype"),
        *("kv_cache_dtype_skip_layers", "enable_chunked_prefill", "enable_prefix_caching"),
        *(
            "disable_sliding_window",
            "disable_hybrid_kv_cache_manager",
            "mamba_cache_mode",
            "mamba_cache_dtype",
        ),
        *(
            "mamba_ssm_cache_dtype",
            "enable_expert_parallel",
            "distributed_executor_backend",
            "async_scheduling",
        ),
        *("enforce_eager", "attention_backend", "cudagraph_capture_sizes", "performance_mode"),
        *("speculative_config", "enable_lora", "limit_mm_per_prompt", "language_model_only"),
        *("skip_mm_profiling", "kv_transfer_config"),
    }
)
"""Arguments that are fields of EngineArgs under their own names."""
_DECIDING = frozenset(
    {
        *("hf_overrides", "rope_scaling", "rope_theta", "runner", "task", "convert", "served_model_name"),
        *("compilation_config", "optimization_level", "attention_config", "cuda_graph_sizes"),
        *("spec_method", "spec_model", "spec_tokens", "speculative_model", "num_speculative_tokens"),
        *(
            "max_seq_len_to_capture",
            "kv_events_config",
            "enable_dbo",
            "enable_elastic_ep",
            "logits_processors",
        ),
        *("enable_prompt_embeds", "enable_return_routed_experts", "logprobs_mode", "kv_sharing_fast_prefill"),
        *(
            "ec_transfer_config",
            "watermark_config",
            "nnodes",
            "data_parallel_backend",
            "data_parallel_size_local",
        ),
        *("num_scheduler_steps", "scheduling_policy", "preemption_mode", "scheduler_delay_factor"),
        *("disable_async_output_proc", "guided_decoding_backend", "enable_prompt_adapter"),
        *("logits_processor_pattern", "max_num_partial_prefills", "max_long_partial_prefills"),
        *("collect_detailed_traces", "otlp_traces_endpoint", "mm_encoder_only", "pooler_config"),
        *("override_pooler_config", "offload_group_size", "cpu_offload_params", "mm_ipc_gpu_memory_gb"),
        *("mm_encoder_tp_mode", "mm_processor_kwargs", "max_num_active_seqs", "disable_custom_all_reduce"),
        *("all2all_backend", "nnodes", "node_rank", "language_model_only"),
        *("fully_sharded_loras", "enable_eplb", "eplb_config", "num_redundant_experts", "reasoning_config"),
    }
)
"""Arguments that decide memory or a refusal through other fields or through ``given``."""
_POOLING_TASKS = frozenset({"embedding", "embed", "classify", "score", "reward"})


def decides(name: str) -> bool:
    """Whether argument ``name`` moves memory or decides a refusal; the others are only passed on."""
    return name in _FIELDS or name in _DECIDING or name == "config"


def check_range(name: str, value: Any, item: Item) -> None:
    """Raise UsageError for a number that no launch can have."""
    if name in _MOST and value > _MOST[name]:
        refuse(item.option, item.values[0], f"at most {_MOST[name]:,}")
    if name in _POSITIVE:
        if value <= 0:
            refuse(item.option, item.values[0], "a number above 0")
    elif name == "gpu_memory_utilization":
        if not 0 < value <= 1:
            refuse(item.option, item.values[0], "a fraction above 0 and up to 1, such as 0.9")
    elif name == "max_model_len":
        if value != -1 and value <= 0:
            refuse(item.option, item.values[0], "a number of tokens above 0")
        if value == -1 and item.flag is not None and item.flag.form != "human_int_or_auto":
            refuse(item.option, item.values[0], "a number of tokens above 0 (auto came with vLLM 0.14.0)")
    elif name in _NOT_NEGATIVE:
        if value < 0:
            refuse(item.option, item.values[0], "0 or more")
    elif name in ("cudagraph_capture_sizes", "cuda_graph_sizes") and min(value) <= 0:
        refuse(item.option, " ".join(item.values), "numbers above 0")


def fields_of(given: dict[str, Any], env: dict[str, str], rules: Rules) -> dict[str, Any]:
    """The fields of EngineArgs that the arguments in ``given`` and the environment fill."""
    fields = {name: value for name, value in given.items() if name in _FIELDS}
    for name in ("speculative_config", "kv_transfer_config", "limit_mm_per_prompt"):
        _need_mapping(fields, name)
    names = given.get("served_model_name")
    if names:
        fields["served_model_name"] = names[0] if isinstance(names, tuple) else str(names)
    fields["hf_overrides"] = _hf_overrides(given)
    fields["runner"] = _runner(given)
    _add_speculation(fields, given)
    _add_graphs(fields, given)
    _add_backend(fields, given, env, rules)
    return fields


def _need_mapping(values: dict[str, Any], name: str) -> None:
    if name in values and not isinstance(values[name], dict):
        if name == "limit_mm_per_prompt" and isinstance(values[name], str):
            values[name] = _pairs(values[name])
            return
        refuse(f"--{name.replace('_', '-')}", values[name], 'a JSON object such as {"key": 1}')


def _pairs(text: str) -> dict[str, int]:
    """``image=2,video=1`` of old releases as a mapping."""
    pairs = {}
    for part in text.split(","):
        key, equals, number = part.partition("=")
        if not equals:
            refuse("--limit-mm-per-prompt", text, "pairs such as image=2,video=1")
        pairs[key.strip()] = human_int(number, "--limit-mm-per-prompt")
    return pairs


def _hf_overrides(given: dict[str, Any]) -> dict[str, Any]:
    """``--hf-overrides`` with what ``--rope-scaling`` and ``--rope-theta`` say."""
    overrides = given.get("hf_overrides", {})
    if not isinstance(overrides, dict):
        refuse("--hf-overrides", overrides, 'a JSON object such as {"rope_theta": 1000000}')
    overrides = dict(overrides)
    for name in ("rope_scaling", "rope_theta"):
        if name in given:
            overrides[name] = given[name]
    return overrides


def _runner(given: dict[str, Any]) -> str | None:
    """``generate`` or ``pooling`` where a flag says so."""
    runner = given.get("runner")
    if runner in ("generate", "pooling"):
        return str(runner)
    if given.get("task") in _POOLING_TASKS or given.get("convert") in ("embed", "classify", "reward"):
        return "pooling"
    return "generate" if given.get("task") == "generate" else None


def _add_speculation(fields: dict[str, Any], given: dict[str, Any]) -> None:
    short = (
        ("spec_method", "method"),
        ("spec_model", "model"),
        ("spec_tokens", "num_speculative_tokens"),
        ("speculative_model", "model"),
        ("num_speculative_tokens", "num_speculative_tokens"),
    )
    config = {key.replace("-", "_"): value for key, value in (fields.get("speculative_config") or {}).items()}
    for name, key in short:
        if name in given:
            config[key] = given[name]
    if config:
        tokens = config.get("num_speculative_tokens")
        if tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0):
            refuse("--speculative-config.num_speculative_tokens", tokens, "a whole number, 0 or more")
        fields["speculative_config"] = config


def _add_graphs(fields: dict[str, Any], given: dict[str, Any]) -> None:
    """CUDA graph and compilation settings, from their own flags and from the JSON ones."""
    config = given.get("compilation_config", {})
    if isinstance(config, int) and not isinstance(config, bool):
        config = {"mode": config}
    if not isinstance(config, dict):
        refuse("--compilation-config", config, 'a level or a JSON object such as {"cudagraph_mode": "NONE"}')
    mode = config.get("mode", config.get("level"))
    level = given.get("optimization_level")
    if mode is None and level is not None:
        mode = 0 if str(level) == "0" else 3
    if mode is not None:
        fields["compilation_mode"] = _compile_mode(mode)
    if config.get("cudagraph_mode") is not None:
        fields["cudagraph_mode"] = str(config["cudagraph_mode"]).upper()
    sizes = config.get("cudagraph_capture_sizes")
    if sizes is None and len(given.get("cuda_graph_sizes", ())) > 1:
        sizes = list(given["cuda_graph_sizes"])
    if sizes is not None and "cudagraph_capture_sizes" not in fields:
        if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
            refuse("--compilation-config.cudagraph_capture_sizes", sizes, "a list of numbers above 0")
        fields["cudagraph_capture_sizes"] = tuple(sizes)
    largest = config.get("max_cudagraph_capture_size")
    if largest is None and len(given.get("cuda_graph_sizes", ())) == 1:
        largest = given["cuda_graph_sizes"][0]
    if largest is not None and "max_cudagraph_capture_size" not in fields:
        if type(largest) is not int or not 0 <= largest <= _LARGEST_GRAPH:
            refuse("--compilation-config.max_cudagraph_capture_size", largest, f"a number from 0 to {_LARGEST_GRAPH:,}")
        fields["max_cudagraph_capture_size"] = largest


_MODES = {"NONE": 0, "STOCK_TORCH_COMPILE": 1, "DYNAMO_TRACE_ONCE": 2, "VLLM_COMPILE": 3}


def _compile_mode(mode: Any) -> int:
    number = _MODES.get(str(mode).upper(), mode)
    if type(number) is not int or not 0 <= number <= 3:
        refuse("--compilation-config.mode", mode, f"0 to 3 or {', '.join(_MODES)}")
    return number


def _add_backend(fields: dict[str, Any], given: dict[str, Any], env: dict[str, str], rules: Rules) -> None:
    config = given.get("attention_config")
    backend = fields.get("attention_backend")
    if backend is None and isinstance(config, dict):
        backend = config.get("backend")
    if backend is None and rules["env_attention_backend"]:
        backend = env.get("VLLM_ATTENTION_BACKEND") or None
    if backend is not None and str(backend).lower() != "auto":
        fields["attention_backend"] = str(backend).upper().removesuffix("_VLLM_V1")
    else:
        fields.pop("attention_backend", None)
