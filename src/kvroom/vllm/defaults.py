"""EngineArgs to Settings: every value that vLLM fills in before it loads the model.

The order is vLLM's (engine/arg_utils.py: EngineArgs.create_engine_config), so that of two mistakes the
one is reported that vLLM reports. What differs between releases is in ``data/vllm/rules/defaults.json``.
"""

from __future__ import annotations

from kvroom.devices.device import Device, Machine
from kvroom.models.shape import ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.batch import batch_v0, batch_v1, check_batch, device_tier
from kvroom.vllm.capture import capture_sizes, graph_mode
from kvroom.vllm.dtypes import check_bfloat16, kv_cache_dtype, model_dtype
from kvroom.vllm.features import (
    async_scheduling,
    choose_engine,
    concurrent_batches,
    hybrid_manager,
    model_runner,
    state_mode,
)
from kvroom.vllm.length import resolve_length
from kvroom.vllm.refusals import StartRefused, refuse
from kvroom.vllm.rules import Rules
from kvroom.vllm.settings import Settings
from kvroom.vllm.speculation import speculative_method, speculative_tokens, verify_speculation

__all__ = ["StartRefused", "resolve"]

_ENCODER_POOLING = frozenset({"MEAN", "CLS", "STEP"})


def resolve(args: EngineArgs, shape: ModelShape, machine: Machine, rules: Rules, *, usage: str = "server") -> Settings:
    """The settings with which the release of ``rules`` would start ``args`` on ``machine``.

    ``usage`` is ``server`` (``vllm serve``) or ``llm`` (the offline class), whose batch defaults differ.
    Raises StartRefused, with vLLM's own text, where vLLM refuses the configuration.
    """
    device = machine.device
    pooling = args.runner == "pooling" or (shape.is_pooling and args.runner != "generate")
    dtype = model_dtype(args, shape, device, rules, pooling=pooling)
    length = resolve_length(args, shape, rules)
    engine = choose_engine(args, shape, device, rules, dtype, pooling=pooling)
    chunked = _chunked_prefill(args, shape, rules, engine, length.max_model_len, pooling=pooling)
    prefix = _prefix_caching(args, shape, rules, engine, pooling=pooling)
    kv_dtype = kv_cache_dtype(args, shape, device, rules)
    _check_world(args, machine, rules)
    if engine == "V0":
        tokens, seqs = batch_v0(args, shape, rules, length.max_model_len, chunked=chunked, pooling=pooling)
    else:
        tier = device_tier(device, rules)
        tokens, seqs = tier["tokens"][usage], tier["seqs"]
        tokens, seqs = batch_v1(args, shape, rules, length.max_model_len, chunked=chunked, tokens=tokens, seqs=seqs)
    check_batch(rules, tokens, seqs, length.max_model_len, chunked=chunked)
    _check_heads(args, shape, rules)
    _check_quantization(args, shape, device, rules)
    verify_speculation(args.speculative_config, shape, rules)
    states = state_mode(args, shape, rules, prefix_caching=prefix)
    _check_states(args, rules, states, chunked=chunked)
    runner = "V1" if engine == "V0" else model_runner(args, shape, device, rules, pooling=pooling, states=states)
    ahead = engine == "V1" and async_scheduling(args, rules, pooling=pooling, states=states, runner=runner)
    groups = engine == "V1" and hybrid_manager(args, shape, rules)
    mode = graph_mode(args, shape, rules, engine, pooling=pooling)
    drafts = speculative_tokens(args.speculative_config)
    sizes = capture_sizes(args, shape, rules, device, engine=engine, mode=mode, seqs=seqs, tokens=tokens, drafts=drafts)
    _check_devices(args, machine, rules)
    check_bfloat16(dtype, device, rules)
    utilization = args.gpu_memory_utilization
    return Settings(
        rules=rules,
        engine=engine,
        max_model_len=length.max_model_len,
        derived_max_model_len=length.derived,
        derived_from=length.derived_from,
        auto_max_model_len=length.auto,
        gpu_memory_utilization=rules["gpu_memory_utilization"] if utilization is None else utilization,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        dtype=dtype,
        kv_cache_dtype=kv_dtype,
        enable_prefix_caching=prefix,
        enable_chunked_prefill=chunked,
        mamba_cache_mode=states,
        async_scheduling=ahead,
        max_concurrent_batches=concurrent_batches(args, rules, runs_ahead=ahead, runner=runner),
        model_runner=runner,
        is_pooling=pooling,
        speculative_tokens=drafts,
        uses_own_draft=_uses_own_draft(args, shape),
        capture_sizes=sizes,
        cudagraph_mode=mode,
        hybrid_manager=groups,
        notes=length.notes + _notes(args, shape, prefix=prefix, engine=engine, seqs=seqs, tokens=tokens),
    )


def _pools_causally(args: EngineArgs, shape: ModelShape) -> bool:
    """Whether a pooling model reads left to right and pools the last token, so that its cache is of use."""
    config = args.given.get("pooler_config") or args.given.get("override_pooler_config")
    kind = str(config.get("pooling_type", "")).upper() if isinstance(config, dict) else ""
    return bool(shape.caches) and kind not in _ENCODER_POOLING


def _chunked_prefill(
    args: EngineArgs, shape: ModelShape, rules: Rules, engine: str, length: int, *, pooling: bool
) -> bool:
    """Whether prompts are cut into chunks. Mirrors engine/arg_utils.py of each generation."""
    asked = args.enable_chunked_prefill
    if engine == "V0":
        if asked is not None:
            return asked
        plain = shape.vision is None and shape.mla is None and shape.sliding_window is None
        simple = plain and not pooling and not args.enable_lora and not args.speculative_config
        return bool(rules["v0_chunks_long_context"]) and length > 32768 and simple
    if shape.is_encoder_decoder:
        return False
    if pooling:
        return _pools_causally(args, shape) if asked is None else asked
    return True if asked is None or not rules["chunked_prefill_choice"] else asked


def _prefix_caching(args: EngineArgs, shape: ModelShape, rules: Rules, engine: str, *, pooling: bool) -> bool:
    """Whether blocks are kept for requests that begin alike."""
    asked = args.enable_prefix_caching
    if engine == "V0":
        return bool(asked) and shape.vision is None
    if shape.is_encoder_decoder:
        return False
    if shape.has_state:
        supported = shape.architecture in rules["states_cached_all"]
        rule = rules["prefix_caching_states" if shape.is_hybrid else "prefix_caching_pure_states"]
        if rule == "off" or (rule.endswith("if_supported") and not supported):
            return False
        return asked is not False if rule.startswith("on") else bool(asked)
    if asked is not None:
        return asked
    return _pools_causally(args, shape) if pooling else True


def _world(args: EngineArgs) -> int:
    return args.tensor_parallel_size * args.pipeline_parallel_size * args.prefill_context_parallel_size


def _stays_here(args: EngineArgs, machine: Machine) -> bool:
    """Whether all workers run on this machine, under vLLM's own process management."""
    ray = args.given.get("data_parallel_backend") == "ray"
    alone = args.given.get("nnodes", 1) == 1 and args.distributed_executor_backend in (None, "mp")
    return alone and not ray and machine.device.vendor in ("NVIDIA", "")


def _check_world(args: EngineArgs, machine: Machine, rules: Rules) -> None:
    """Refuse a world larger than the machine. Mirrors config/parallel.py: ParallelConfig.__post_init__."""
    unsaid = args.distributed_executor_backend is None
    if unsaid and _world(args) > machine.count and _stays_here(args, machine):
        refuse(rules, "refuse_world_size", world=_world(args), gpus=machine.count)


def _check_devices(args: EngineArgs, machine: Machine, rules: Rules) -> None:
    """Refuse a rank without a GPU, as its worker does. Mirrors v1/worker/gpu_worker.py: init_device."""
    replicas = args.given.get("data_parallel_size_local") or args.data_parallel_size
    if _world(args) * replicas > machine.count and _stays_here(args, machine):
        refuse(rules, "refuse_device", stage="device_memory_check", gpus=machine.count)


def _check_heads(args: EngineArgs, shape: ModelShape, rules: Rules) -> None:
    """Refuse head counts that do not divide. Mirrors config/model.py: verify_with_parallel_config."""
    tp = args.tensor_parallel_size
    if shape.heads % tp:
        refuse(rules, "refuse_heads", heads=shape.heads, tp=tp)
    dcp = args.decode_context_parallel_size
    if dcp > 1 and shape.mla is None and shape.kv_heads and rules["refuse_dcp_heads"]:
        if tp <= shape.kv_heads:
            refuse(rules, "refuse_dcp_heads", tp=tp, kv_heads=shape.kv_heads)
        most = tp // shape.kv_heads
        if dcp > most:
            refuse(rules, "refuse_dcp_size", tp=tp, kv_heads=shape.kv_heads, dcp=dcp, most=most)


def _check_quantization(args: EngineArgs, shape: ModelShape, device: Device, rules: Rules) -> None:
    """Refuse a method that the release does not know, and a scheme whose kernels the GPU is too old for.

    Mirrors config/model.py: _verify_quantization, and config/vllm.py: _get_quantization_config.
    """
    known = rules["quantization_methods"]
    # A checkpoint's own method may override what the flag says.
    named = shape.unread_quantization or (args.quantization if shape.quantization is None else None)
    if known is not None and named and named.lower() not in known:
        refuse(rules, "refuse_quantization_method", method=named.lower(), known=known)
    method = args.quantization or (shape.quantization.method if shape.quantization is not None else "")
    capability = device.compute_capability
    least = rules["quantization_least_capability"].get(method)
    if least is None or capability is None or device.vendor != "NVIDIA":
        return
    current = 10 * capability[0] + capability[1]
    if current < least:
        names = rules["quantization_spelling"]
        name = names.get(f"{shape.architecture} {method}") or names.get(method, method)
        refuse(rules, "refuse_quantization", method=name, least=least, capability=current)


def _check_states(args: EngineArgs, rules: Rules, states: str, *, chunked: bool) -> None:
    if states == "align":
        if not chunked and rules["refuse_state_chunks"]:
            refuse(rules, "refuse_state_chunks")
        if args.speculative_config and rules["refuse_state_drafts"]:
            refuse(rules, "refuse_state_drafts")


def _uses_own_draft(args: EngineArgs, shape: ModelShape) -> bool:
    config = args.speculative_config or {}
    own_model = config.get("model") in (None, "", args.model)
    return bool(shape.draft_caches) and own_model and speculative_method(config) == "mtp"


def _notes(
    args: EngineArgs, shape: ModelShape, *, prefix: bool, engine: str, seqs: int, tokens: int
) -> tuple[str, ...]:
    notes = []
    if engine == "V0" and args.env.get("VLLM_USE_V1") is None:
        notes.append("This launch runs on the V0 engine.")
    if args.enable_prefix_caching and not prefix:
        notes.append("Prefix caching was asked for, but this release switches it off for this model.")
    if args.max_num_seqs is not None and args.max_num_batched_tokens is None and tokens < 2 * seqs:
        notes.append(f"max_num_batched_tokens became {tokens}: no more than max_num_seqs x max_model_len.")
    if shape.has_state and args.mamba_cache_mode and not prefix and args.mamba_cache_mode != "none":
        notes.append("The Mamba cache mode is none, because prefix caching is off.")
    return tuple(notes)
