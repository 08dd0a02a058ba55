"""The activation peak of the profile run: the largest of its phases, in bytes per GPU.

vLLM runs one forward pass with ``max_num_batched_tokens`` dummy tokens and samples for
``min(max_num_seqs, max_num_batched_tokens)`` dummy requests (v1/worker/gpu_model_runner.py:
profile_run). What peaks is the sampler, the widest layer, or the vision encoder, whichever is
largest; buffers that stay alive between phases are added. Fitted terms are rules.
"""

from __future__ import annotations

from kvroom.devices.device import Device
from kvroom.ledger.encoder import encoder_kept, encoder_peak, encodes, items_profiled, largest_item
from kvroom.ledger.entries import Basis, Entry
from kvroom.ledger.estimate import ZERO, Estimate, from_rule, mebibytes, scaled
from kvroom.ledger.traced import factors_for
from kvroom.models.shape import ModelShape
from kvroom.units import MIB, cdiv, show_bytes
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.kv.pages import DTYPE_BYTES
from kvroom.vllm.settings import Settings

_TRACE_OFF = Estimate(-16 * MIB, 0.0, 24 * MIB)
"""What a trace does not see: allocator rounding, and the workspaces of libraries."""
_MULTIPROCESSORS = 132
"""Of a card that does not say: those of an H100."""


def activation_peak(
    shape: ModelShape,
    args: EngineArgs,
    settings: Settings,
    device: Device,
    *,
    first_stage: bool = True,
    last_stage: bool = True,
) -> Entry:
    """The activation entry of one pipeline stage, with the phase that decides it in ``why``.

    The sampler runs on the last stage only, the vision encoder on the first.
    """
    kept = moe_workspace(shape, args, settings)
    has_encoder = first_stage and encodes(shape, args)
    if has_encoder:
        # The encoder's outputs stay cached while the language model runs, and so do its inputs.
        kept = kept.plus(encoder_kept(shape, args, settings))
    factors = factors_for(shape, args, settings)
    first, routed = forward_peaks(shape, args, settings)
    sampler = sampler_peak(shape, args, settings, device)
    if factors is not None:
        first, routed = _as_traced(first, factors.forward), _as_traced(routed, factors.forward)
        if factors.sampler is not None:
            sampler = _as_traced(sampler, factors.sampler)
    phases = {"forward": routed.plus(kept).at_least(first)}
    if last_stage and not settings.is_pooling:
        phases["sampler"] = sampler.plus(kept)
    if has_encoder:
        phases["encoder"] = encoder_peak(shape, args, settings)
    peak = ZERO
    for estimate in phases.values():
        peak = peak.at_least(estimate)
    extra = mebibytes(settings.rules["profile_extra_mib"]) if factors is None else _TRACE_OFF
    peak = peak.plus(extra).plus(cublas(device, settings))
    if shape.assumptions:
        peak = Estimate(peak.low * 0.6, peak.expected, peak.high * 1.6)
    cause = max(phases, key=lambda phase: phases[phase].expected)
    words = {"forward": _forward_words, "sampler": _sampler_words, "encoder": _encoder_words}[cause]
    rule = settings.rules.rule(sampler_rule(args, settings))
    scaled_as = f"; {factors.words}" if factors is not None and cause != "encoder" else ""
    return Entry(
        "activation",
        int(peak.low),
        int(peak.expected),
        int(peak.high),
        Basis.TRACED if factors is not None and factors.exact and cause != "encoder" else Basis.ESTIMATED,
        f"peak of the profile run: {words(shape, args, settings)}{scaled_as}",
        rule.source if cause == "sampler" else "v1/worker/gpu_model_runner.py: profile_run",
        cause,
    )


def _as_traced(phase: Estimate, factor: Estimate) -> Estimate:
    """The expected bytes of a phase, times the factors that were traced."""
    return Estimate(phase.expected * factor.low, phase.expected * factor.expected, phase.expected * factor.high)


def cublas(device: Device, settings: Settings) -> Estimate:
    """The cuBLAS workspace, which torch takes through its own allocator."""
    sizes = settings.rules["cublas_workspace_mib"]
    major = (device.compute_capability or (0, 0))[0]
    n_bytes = (sizes["hopper"] if major >= 9 else sizes["other"]) * MIB
    return Estimate(n_bytes, n_bytes, n_bytes)


def sampled_rows(settings: Settings) -> int:
    """Rows of logits in the profile run: one for each dummy request."""
    return min(settings.max_num_seqs, settings.max_num_batched_tokens)


def sampler_peak(shape: ModelShape, args: EngineArgs, settings: Settings, device: Device) -> Estimate:
    """Bytes alive while sampling: rows x vocabulary x a fitted factor of the release and sampler.

    Triton's top-k and top-p takes a row of float32 for each multiprocessor, at most one for each request.
    """
    name = sampler_rule(args, settings)
    rule = settings.rules[name]
    per_logit = from_rule(rule, sampled_rows(settings) * shape.vocab_size)
    hidden = rule["hidden"] * settings.max_num_batched_tokens * shape.hidden_size * DTYPE_BYTES.get(settings.dtype, 2)
    if settings.rules["topk_buffer"] and name == "sampler_bytes_per_logit":
        hidden += 4 * min(device.multiprocessors or _MULTIPROCESSORS, sampled_rows(settings)) * shape.vocab_size
    per_logit = per_logit.plus(Estimate(hidden, hidden, hidden))
    if settings.speculative_tokens:
        # The rejection sampler gets a second pair of logits a request, and its float32 copies.
        drafts = sampled_rows(settings) * shape.vocab_size
        per_logit = per_logit.plus(Estimate(0.0, 4.0 * drafts, 12.0 * drafts))
    return per_logit


def sampler_rule(args: EngineArgs, settings: Settings) -> str:
    """The name of the rule that holds the factor of the launch's sampler."""
    if settings.model_runner == "V2":
        return "sampler_bytes_per_logit_v2"
    if args.env.get("VLLM_USE_FLASHINFER_SAMPLER") == "1":
        return "sampler_bytes_per_logit_flashinfer"
    return "sampler_bytes_per_logit"


def forward_peaks(shape: ModelShape, args: EngineArgs, settings: Settings) -> tuple[Estimate, Estimate]:
    """Bytes alive in the widest layer of the forward pass: of dense layers that come first, and of the others.

    The experts' workspaces are grown by the first layer that routes, so dense layers before it do without.
    """
    tokens = settings.max_num_batched_tokens
    size = DTYPE_BYTES.get(settings.dtype, 2)
    resid = 4 * tokens * shape.hidden_size * size
    dense = tokens * 3 * cdiv(shape.intermediate_size, args.tensor_parallel_size) * size
    widest = _attention_bytes(shape, args, settings)
    first = ZERO
    if shape.is_moe and shape.experts.layers < shape.layers:
        first = _spread(shape, resid + dense)
    else:
        widest = max(widest, dense)
    if shape.is_moe and settings.rules["moe_workspace"] == "temporary":
        widest = max(widest, int(_moe_bytes(shape, args, settings)))
    router = tokens * shape.experts.routed * 8
    return first, _spread(shape, resid + widest + router)


def _spread(shape: ModelShape, n_bytes: int) -> Estimate:
    sure = not (shape.is_moe or shape.mla or shape.has_state)
    return scaled(n_bytes, *((0.85, 1.35) if sure else (0.6, 2.0)))


def _attention_bytes(shape: ModelShape, args: EngineArgs, settings: Settings) -> int:
    """Bytes of queries, keys, values and the output of one attention layer."""
    tokens, tp = settings.max_num_batched_tokens, args.tensor_parallel_size
    size = DTYPE_BYTES.get(settings.dtype, 2)
    if shape.mla is None:
        q = shape.heads * shape.head_size
        kv = 2 * shape.kv_heads * shape.head_size
        return tokens * (cdiv(q + kv, tp) + cdiv(q, tp)) * size
    heads = cdiv(shape.heads, tp)
    n_bytes = tokens * heads * (2 * (shape.qk_nope_head_size + shape.mla.rope_size) + 2 * shape.v_head_size) * size
    if settings.rules["mla_profile_dummy"]:
        context = min(max(8 * settings.max_model_len, 4 * settings.max_num_seqs * 16), 65536)
        latent = shape.mla.kv_lora_rank + shape.mla.rope_size
        n_bytes += context * (latent + heads * (shape.qk_nope_head_size + shape.v_head_size)) * size
    return n_bytes


def moe_workspace(shape: ModelShape, args: EngineArgs, settings: Settings) -> Estimate:
    """Bytes of the fused-experts workspaces that stay allocated through the profile run."""
    if not shape.is_moe or settings.rules["moe_workspace"] != "persistent":
        return ZERO
    return scaled(_moe_bytes(shape, args, settings), 0.5, 1.6)


def _moe_bytes(shape: ModelShape, args: EngineArgs, settings: Settings) -> float:
    experts = shape.experts
    # Experts see the tokens of all data-parallel ranks, gathered and in chunks, and are cut over tensor and data
    # parallel alike (distributed/device_communicators/all2all.py; fused_moe.py: fused_experts_impl).
    tokens = settings.max_num_batched_tokens * args.data_parallel_size
    rows = min(tokens, settings.rules["moe_chunk_tokens"] or tokens) * experts.per_token
    inner = experts.intermediate_size
    if not args.enable_expert_parallel:
        inner = cdiv(inner, args.tensor_parallel_size * args.data_parallel_size)
    size = DTYPE_BYTES.get(settings.dtype, 2)
    gathered = tokens * shape.hidden_size * size if args.data_parallel_size > 1 else 0
    return float(rows * (max(2 * inner, shape.hidden_size) + max(inner, shape.hidden_size)) * size + gathered)


def _sampler_words(shape: ModelShape, _args: EngineArgs, settings: Settings) -> str:
    rows = sampled_rows(settings)
    one = show_bytes(rows * shape.vocab_size * 4)
    return (
        f"the sampler, {rows} sequences (max_num_seqs) x {shape.vocab_size:,} vocabulary entries, "
        f"{one} for each float32 copy"
    )


def _encoder_words(shape: ModelShape, args: EngineArgs, settings: Settings) -> str:
    assert shape.vision is not None
    item = largest_item(shape.vision, args, settings)
    count = items_profiled(item, settings)
    return f"the vision encoder, profiled with {count} {item.kind} item{'s' * (count > 1)} of {item.counted:,} tokens"


def _forward_words(shape: ModelShape, _args: EngineArgs, settings: Settings) -> str:
    part = "experts" if shape.is_moe else "feed-forward layer"
    return f"the forward pass, {settings.max_num_batched_tokens:,} tokens (max_num_batched_tokens) in the {part}"
