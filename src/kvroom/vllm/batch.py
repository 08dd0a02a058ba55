"""How many tokens and sequences a step may hold: vLLM's defaults by device, clipped as it clips them."""

from __future__ import annotations

from typing import Any

from kvroom.devices.device import Device
from kvroom.models.shape import ModelShape
from kvroom.units import GIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.refusals import refuse
from kvroom.vllm.rules import Rules


def device_tier(device: Device, rules: Rules) -> dict[str, Any]:
    """The batch defaults of the device's size. Mirrors engine/arg_utils.py: get_batch_defaults.

    An integrated GPU (GB10, Jetson) has no total that NVML tells, so releases that ask only NVML take it for small.
    """
    if device.unified and device.vendor == "NVIDIA" and rules["batch_tier_by_nvml"]:
        return dict(rules["batch_tiers"][-1])
    for tier in rules["batch_tiers"]:
        if device.total_bytes < tier["min_gib"] * GIB:
            continue
        if "not_named" in tier and tier["not_named"] in device.name.lower():
            continue
        if "not_capability" in tier and device.compute_capability == tuple(tier["not_capability"]):
            continue
        return dict(tier)
    return dict(rules["batch_tiers"][-1])


def batch_v1(
    args: EngineArgs, shape: ModelShape, rules: Rules, length: int, *, chunked: bool, tokens: int, seqs: int
) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) of the V1 engine; ``tokens`` and ``seqs`` are the device's."""
    if _batches_over_dp(args, shape) and rules["batched_dp_tokens"]:
        tokens = rules["batched_dp_tokens"]
    if args.performance_mode == "throughput" and rules["performance_mode"]:
        tokens, seqs = 2 * tokens, 2 * seqs
    given = args.max_num_batched_tokens
    seqs = seqs if args.max_num_seqs is None else args.max_num_seqs
    rule = rules["unchunked_tokens"]
    if not chunked and (rule == "length_always" or (given is None and rule == "length")):
        tokens = length
    elif given is not None:
        tokens = given
    else:
        if not chunked and rule == "at_least_length":
            tokens = max(length, tokens)
        if shape.vision is not None and shape.is_prefix_lm_multimodal and not args.language_model_only:
            tokens = max(tokens, rules["prefix_lm_least_tokens"].get(shape.architecture, 0))
        if rules["clips_tokens"]:
            tokens = min(seqs * length, tokens)
    if args.max_num_seqs is None and rules["clips_seqs"]:
        seqs = min(seqs, tokens)
    return tokens, seqs


def _batches_over_dp(args: EngineArgs, shape: ModelShape) -> bool:
    backend = args.given.get("all2all_backend")
    wide = args.enable_expert_parallel and args.data_parallel_size > 1
    return shape.is_moe and wide and backend in ("deepep_low_latency", "nixl_ep")


def batch_v0(
    args: EngineArgs, shape: ModelShape, rules: Rules, length: int, *, chunked: bool, pooling: bool
) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) of the V0 engine. Mirrors config.py: SchedulerConfig."""
    rule = rules["v0_batch"]
    seqs = rule["seqs"] if args.max_num_seqs is None else args.max_num_seqs
    if args.max_num_batched_tokens is not None:
        return args.max_num_batched_tokens, seqs
    tokens = rule["chunked"] if chunked else max(length, rule["least"])
    if pooling:
        tokens = max(tokens, rule["pooling"])
    if shape.vision is not None:
        tokens = max(tokens, rule["multimodal"])
    return tokens, seqs


def check_batch(rules: Rules, tokens: int, seqs: int, length: int, *, chunked: bool) -> None:
    """Refuse a budget of tokens below the context or below the sequences, in vLLM's words."""
    if tokens < length and not chunked:
        refuse(rules, "refuse_tokens_below_length", tokens=tokens, length=length)
    if tokens < seqs:
        refuse(rules, "refuse_tokens_below_seqs", tokens=tokens, seqs=seqs)
