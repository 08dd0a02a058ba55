"""Choices that one feature makes for another: engine, model runner, async scheduling, hybrid manager.

Mirrors engine/arg_utils.py: _is_v1_supported_oracle (to 0.10) and config/vllm.py:
VllmConfig.__post_init__, use_v2_model_runner, max_concurrent_batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvroom.devices.device import Device
from kvroom.models.shape import AttentionCache, AttentionKind, ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.refusals import refuse
from kvroom.vllm.rules import Rules
from kvroom.vllm.speculation import speculative_method

_V0_OPTIONS = (
    "preemption_mode",
    "num_scheduler_steps",
    "scheduler_delay_factor",
    "disable_async_output_proc",
    "enable_prompt_adapter",
    "logits_processor_pattern",
)
"""Options that only the V0 engine has."""
_V1_METHODS = frozenset({"ngram", "eagle", "eagle3"})
_EXECUTORS = frozenset({"mp", "uni", "external_launcher"})


def choose_engine(
    args: EngineArgs, shape: ModelShape, device: Device, rules: Rules, dtype: str, *, pooling: bool
) -> str:
    """``V1``, or ``V0`` where the release still had it and the launch needs or asks for it."""
    choice = rules["engine"]
    if choice != "choice":
        return str(choice)
    asked = args.env.get("VLLM_USE_V1")
    if asked is not None:
        return "V1" if asked.strip() not in ("0", "false", "") else "V0"
    checks: dict[str, Callable[[], bool]] = {
        "listed": lambda: shape.architecture in rules["v0_only_architectures"],
        "encoder_only": lambda: pooling and not shape.caches,
        "capability": lambda: device.compute_capability is not None and device.compute_capability[0] < 8,
        "kv_dtype": lambda: not _v1_reads_kv(args, device),
        "float32": lambda: dtype == "float32",
        "gguf": lambda: (args.quantization or "") == "gguf",
        "pooling": lambda: pooling,
        "pp_without_ray": lambda: args.pipeline_parallel_size > 1 and args.distributed_executor_backend != "ray",
        "speculation": lambda: speculative_method(args.speculative_config) not in (None, *_V1_METHODS),
        "state": lambda: shape.has_state,
        "load_format": lambda: args.load_format in ("sharded_state", "tensorizer"),
        "options": lambda: any(args.given.get(name) for name in _V0_OPTIONS),
    }
    return "V0" if any(checks[code]() for code in rules["v1_refuses"]) else "V1"


def _v1_reads_kv(args: EngineArgs, device: Device) -> bool:
    """Whether the V1 engine of 0.8 to 0.10 takes the KV dtype: fp8 with FlashAttention 3 only."""
    if args.kv_cache_dtype in (None, "auto"):
        return True
    if device.vendor == "AMD":
        return True
    capability = device.compute_capability or (0, 0)
    uses_flash = args.attention_backend in (None, "FLASH_ATTN")
    return capability[0] == 10 or (str(args.kv_cache_dtype).startswith("fp8") and uses_flash and capability[0] == 9)


def state_mode(args: EngineArgs, shape: ModelShape, rules: Rules, *, prefix_caching: bool) -> str:
    """``mamba_cache_mode`` after prefix caching and the architecture had their say."""
    if not prefix_caching or not shape.has_state:
        return "none"
    supported = shape.architecture in rules["states_cached_all"]
    asked = args.mamba_cache_mode
    if asked in (None, "none"):
        rule = rules["state_mode"]
        speculates = rule == "all_unless_speculating" and bool(args.speculative_config)
        if rule == "align" or (rule != "all" and (speculates or not supported)):
            return "align"
        return "all"
    return "align" if asked == "all" and not supported else str(asked)


def model_runner(
    args: EngineArgs, shape: ModelShape, device: Device, rules: Rules, *, pooling: bool, states: str
) -> str:
    """``V2`` or ``V1``: which model runner the release picks for this launch."""
    asked = args.env.get("VLLM_USE_V2_MODEL_RUNNER")
    if asked is not None and rules["model_runner_env"]:
        return "V2" if asked.strip() in ("1", "true", "True") else "V1"
    rule = rules["model_runner"]
    default = rule["default"]
    if default == "never" or device.vendor not in ("NVIDIA", "AMD", "Intel", ""):
        return "V1"
    if default == "all":
        if device.vendor == "AMD" and shape.architecture in rule["amd_v1"]:
            return "V1"
    elif not _is_default(shape, args, default, rule["architectures"], pooling=pooling):
        return "V1"
    return "V1" if _v2_lacks(args, shape, rules, states) else "V2"


def _is_default(shape: ModelShape, args: EngineArgs, default: str, listed: list[str], *, pooling: bool) -> bool:
    method = speculative_method(args.speculative_config)
    if default in ("listed_or_dense", "listed_even_hybrid_or_dense") and method == "dspark":
        return True
    if pooling:
        return False
    is_listed = shape.architecture in listed
    if default == "listed_plain":
        return is_listed and not shape.is_moe and shape.quantization is None and not args.quantization
    if default == "listed":
        return is_listed
    if shape.has_state and not (default == "listed_even_hybrid_or_dense" and is_listed and shape.is_hybrid):
        return False
    return is_listed or not shape.is_moe


def _v2_lacks(args: EngineArgs, shape: ModelShape, rules: Rules, states: str) -> bool:
    """Whether the launch uses something that the release's V2 runner does not have."""
    given = args.given
    config = args.speculative_config or {}
    method = speculative_method(args.speculative_config)
    wide = args.prefill_context_parallel_size > 1
    staged = args.pipeline_parallel_size > 1
    uses: dict[str, bool] = {
        "state": shape.has_state,
        "state_align": states == "align",
        "state_all": states == "all",
        "pcp": wide,
        "pcp_without_mla": wide and shape.mla is None,
        "external_pp": staged and args.distributed_executor_backend == "external_launcher",
        "parallel_drafting": bool(config.get("parallel_drafting")) and method not in ("dflash", "dspark"),
        "dynamic_speculation": bool(config.get("num_speculative_tokens_per_batch_size")),
        "eagle3_pp": method == "eagle3" and staged,
        "stock_compile": args.compilation_mode == 1,
        "reasoning": bool(given.get("reasoning_config")),
        "dbo": bool(given.get("enable_dbo")),
        "elastic_ep": bool(given.get("enable_elastic_ep")),
        "routed_experts": bool(given.get("enable_return_routed_experts")),
        "logits_processors": bool(given.get("logits_processors")),
        "prompt_embeds": bool(given.get("enable_prompt_embeds")),
        "raw_logits": given.get("logprobs_mode") in ("raw_logits", "processed_logits"),
        "kv_sharing_fast_prefill": bool(given.get("kv_sharing_fast_prefill")),
        "ec_transfer": bool(given.get("ec_transfer_config")),
    }
    if any(uses[code] for code in rules["model_runner_blocked_by"]):
        return True
    if method is None:
        return False
    methods = rules["model_runner_methods"]
    return method not in methods["allowed"] if "allowed" in methods else method in methods["refused"]


def async_scheduling(args: EngineArgs, rules: Rules, *, pooling: bool, states: str, runner: str) -> bool:
    """Whether batches are scheduled ahead."""
    rule = rules["async_scheduling"]
    if args.async_scheduling is not None:
        return args.async_scheduling
    if not rule["default"]:
        return False
    config = args.speculative_config or {}
    method = speculative_method(args.speculative_config)
    v1 = runner == "V1"
    staged = args.pipeline_parallel_size > 1
    bad_method = method is not None and method not in rules["async_methods"]
    unpadded = bool(config.get("disable_padded_drafter_batch"))
    blocks = {
        "pp": staged,
        "pp_v1": staged and v1,
        "method": bad_method,
        "method_v1": bad_method and v1,
        "padded_drafter": unpadded,
        "padded_drafter_v1": unpadded and v1,
        "executor": args.distributed_executor_backend not in (None, *_EXECUTORS),
        "state_mode": states != "none",
        "pooling": pooling,
    }
    return not any(blocks[code] for code in rule["blocked_by"])


def concurrent_batches(args: EngineArgs, rules: Rules, *, runs_ahead: bool, runner: str) -> int:
    """Batches that may be in flight at once (``max_concurrent_batches``)."""
    stages = args.pipeline_parallel_size
    rule = rules["concurrent_batches"]
    if not runs_ahead or rule == "stages":
        return stages
    if rule == "by_runner" and runner == "V2":
        return stages + 1
    return 2 if rule == "two_if_async" or stages <= 1 else stages


def hybrid_manager(args: EngineArgs, shape: ModelShape, rules: Rules) -> bool:
    """Whether the hybrid KV cache manager runs, so that windows and states get groups of their own.

    Raises StartRefused when it is asked for and the launch has something that it does not support.
    """
    rule = rules["hybrid_manager"]
    if rule is None:
        return False
    asked_off = args.disable_hybrid_kv_cache_manager
    if asked_off:
        return False
    off = bool(rule["events"] and args.given.get("kv_events_config"))
    if _has_chunks(shape):
        method = speculative_method(args.speculative_config)
        if rule["chunked_draft"] and method in ("eagle", "eagle3", "mtp"):
            off = True
        elif rule["chunked"] is not None:
            allowed = args.env.get("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE", rule["chunked"])
            off = off or allowed.strip() != "1"
    if asked_off is False and off and rules["refuse_hybrid_manager"]:
        refuse(rules, "refuse_hybrid_manager")
    connector = _connector(args)
    if connector and (asked_off is None or rule["connector"] == "always"):
        off = off or rule["connector"] != "by_connector" or not _supports_groups(args, rules, connector)
    return not off


def _has_chunks(shape: ModelShape) -> bool:
    return any(
        isinstance(layer.cache, AttentionCache) and layer.cache.kind is AttentionKind.CHUNKED for layer in shape.caches
    )


def _connector(args: EngineArgs) -> str | None:
    if args.kv_transfer_config:
        return str(args.kv_transfer_config.get("kv_connector") or "")
    return None


def _supports_groups(args: EngineArgs, rules: Rules, connector: str) -> bool:
    """Whether ``connector`` (or each part of a MultiConnector) works with several KV cache groups."""
    known = rules["hybrid_connectors"]
    if connector != "MultiConnector":
        return connector in known
    extra = (args.kv_transfer_config or {}).get("kv_connector_extra_config")
    parts = extra.get("connectors") if isinstance(extra, Mapping) else None
    if not isinstance(parts, list):
        return True
    return all(isinstance(part, Mapping) and part.get("kv_connector") in known for part in parts)
