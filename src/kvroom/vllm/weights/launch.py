"""What decides the weights of one launch: the key under which answers are kept, and the rank's share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvroom.devices.device import Device
from kvroom.models.quantization import Quantization, online_quantization
from kvroom.models.shape import ModelShape
from kvroom.models.weights.assignment import Stored, assign
from kvroom.models.weights.storage import Cut
from kvroom.units import from_gib
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.rules import Rules

OWN_DRAFTS = ("deepseek_mtp", "nextn")
"""Speculative methods, beside all that end in ``mtp``, that use the checkpoint's own layers."""
SHARED_EMBEDDING = ("eagle", "eagle3", "dflash", "medusa", "hydra")
"""Speculative methods whose draft model takes the target's embedding."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that the bytes of the weights depend on; hashable, so that answers can be kept."""

    shape: ModelShape
    draft: ModelShape | None
    rules: Rules
    vendor: str
    capability: tuple[int, int] | None
    quantization: str | None
    """``--quantization`` on a plain checkpoint."""
    element: int
    tp: int
    pp: int
    stage: int
    partition: str | None
    ep: int
    moe_tp: int
    batched_tokens: int
    own_draft: bool
    shared_embedding: bool
    pooling: bool
    language_only: bool
    towers_whole: bool
    keep_zeros: bool
    lora: tuple[int, int] | None
    """(max_loras, max_lora_rank)."""
    offload: float

    @property
    def first(self) -> bool:
        """Whether the stage embeds."""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """Whether the stage has the output head."""
        return self.stage == self.pp - 1


def large(device: Device) -> bool:
    """Whether vLLM's batches are those of a large card, the only thing about its memory that weights depend on."""
    return device.total_bytes >= from_gib(70)


def launch_of(
    shape: ModelShape, args: EngineArgs, rules: Rules, device: Device, stage: int, draft: ModelShape | None
) -> Launch:
    """The launch that ``args`` describe.

    With expert parallelism the experts are spread over all tensor- and data-parallel ranks; without it
    each expert's width is divided by as many (layers/fused_moe/config.py: FusedMoEParallelConfig.make).
    """
    wide = args.tensor_parallel_size * args.data_parallel_size * args.prefill_context_parallel_size
    ep = wide if args.enable_expert_parallel and wide > 1 else 1
    spec = args.speculative_config
    method = str(spec.get("method") or "") if spec else ""
    return Launch(
        shape=shape,
        draft=draft,
        rules=rules,
        vendor=device.vendor.upper(),
        capability=device.compute_capability,
        quantization=args.quantization if shape.quantization is None else None,
        element=4 if args.dtype in ("float32", "float") else 2,
        tp=args.tensor_parallel_size,
        pp=args.pipeline_parallel_size,
        stage=stage,
        partition=args.env.get("VLLM_PP_LAYER_PARTITION"),
        ep=ep,
        moe_tp=1 if ep > 1 else wide,
        batched_tokens=args.max_num_batched_tokens or (8192 if large(device) else 2048),
        own_draft=bool(spec) and draft is None and (method in OWN_DRAFTS or method.endswith("mtp")),
        shared_embedding=method in SHARED_EMBEDDING,
        pooling=shape.is_pooling or args.runner == "pooling",
        language_only=leaves_towers_out(shape, args, rules),
        towers_whole=args.given.get("mm_encoder_tp_mode") == "data",
        keep_zeros=args.quantization == "gptq",
        lora=(args.max_loras, args.max_lora_rank) if args.enable_lora else None,
        offload=args.cpu_offload_gb,
    )


def leaves_towers_out(shape: ModelShape, args: EngineArgs, rules: Rules) -> bool:
    """Whether the vision tower is not loaded: on demand, or since ``--limit-mm-per-prompt`` allows it no item."""
    if args.language_model_only or not args.limit_mm_per_prompt:
        return args.language_model_only
    items = rules["towers_left_out_at_zero"].get(shape.architecture)
    return bool(items) and all(_is_zero(args.limit_mm_per_prompt.get(item)) for item in items)


def _is_zero(limit: object) -> bool:
    """Whether a limit, a count or options with one, is 0; none is vLLM's default, which is not."""
    return (limit.get("count") if isinstance(limit, Mapping) else limit) in (0, "0")


Assigned = tuple[tuple[Stored, ...], tuple[Stored, ...], Quantization | None]
"""The main weights and the own drafts' with their schemes, and the quantisation in force."""
_assigned: dict[tuple[ModelShape, str | None], Assigned] = {}
_KEPT = 512


def assigned(launch: Launch) -> Assigned:
    """The model's weights with the schemes that they are stored in, kept by model."""
    key = (launch.shape, launch.quantization)
    found = _assigned.get(key)
    if found is None:
        if len(_assigned) >= _KEPT:
            _assigned.clear()
        quantization = launch.shape.quantization
        if quantization is None and launch.quantization:
            quantization = online_quantization(launch.quantization)
        main = assign(launch.shape.tensors, quantization)
        # files leave the layers that speculate plain, also where nothing here says what they leave
        unsaid = quantization is not None and (quantization.assumed or quantization.unlisted)
        drafts = assign(launch.shape.draft_tensors, None if unsaid else quantization)
        found = _assigned[key] = (main, drafts, quantization)
    return found


def cut_of(launch: Launch, quantization: Quantization | None) -> Cut:
    """The share of one rank and the storage rules of its GPU and release."""
    rules, capability = launch.rules, launch.capability
    nvidia = launch.vendor == "NVIDIA" and capability is not None
    cut = Cut(
        tp=launch.tp,
        moe_tp=launch.moe_tp,
        ep=launch.ep,
        element=launch.element,
        vocab_padding=rules["vocab_padding"],
        lora_vocab=rules["lora_extra_vocab"] if launch.lora else 0,
        marlin=nvidia and (capability or (0, 0)) < (8, 9),
        scale_tiles=nvidia and (capability or (0, 0)) >= (10, 0),
        keep_zeros=launch.keep_zeros,
        nested_scales=rules["bitsandbytes_nested_scales"],
    )
    if quantization is not None and quantization.method == "mxfp4":
        return padded(cut, rules["mxfp4_padding"][mxfp4_kernels(launch)[0]])
    return cut


def padded(cut: Cut, padding: Mapping[str, int]) -> Cut:
    """``cut`` with the padding of one mxfp4 kernel."""
    return replace(
        cut,
        expert_rounding=(padding["intermediate"], padding["hidden"]),
        value_padding=padding.get("values", 1),
    )


def mxfp4_kernels(launch: Launch) -> list[str]:
    """The kernels that may run mxfp4 experts on the launch's GPU in its release, the likeliest first."""
    table = launch.rules["mxfp4_kernels"]
    if launch.vendor == "AMD":
        return list(table["rocm"])
    for entry in table["by_capability"]:
        if launch.capability and tuple(entry["from"]) <= launch.capability <= tuple(entry["to"]):
            return list(entry["kernels"])
    return list(table["default"])
