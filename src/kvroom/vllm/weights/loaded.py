"""What the weights take on one GPU after loading: vLLM's "Model loading took X GiB"."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.devices.device import Device
from kvroom.models.quantization import Quantization
from kvroom.models.shape import ModelShape
from kvroom.models.weights.tensor import Part, guessed_share
from kvroom.units import from_gib, show_bytes
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.rules import Rules
from kvroom.vllm.weights.launch import Launch, assigned, cut_of, large, launch_of, leaves_towers_out
from kvroom.vllm.weights.lora import lora_bytes
from kvroom.vllm.weights.spread import spread
from kvroom.vllm.weights.stage import draft_bytes, layers_on_stage, stage_bytes


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """Bytes per GPU of one pipeline stage."""

    low: int
    expected: int
    high: int
    basis: str
    """``computed`` from the config, ``published`` from the checkpoint's own headers where the architecture
    is not known, else ``estimated``."""
    parts: tuple[tuple[str, int], ...]
    """(what, bytes), largest first; they add up to ``expected``."""
    why: str
    source: str = ""
    notes: tuple[str, ...] = ()


_answers: dict[tuple[object, ...], LoadedWeights] = {}
_KEPT = 8192
"""Answers kept; a search over more starts afresh."""


def loaded_weights(
    shape: ModelShape,
    args: EngineArgs,
    rules: Rules,
    device: Device,
    *,
    stage: int = 0,
    draft: ModelShape | None = None,
) -> LoadedWeights:
    """Bytes that the weights take on one GPU of pipeline stage ``stage``, with their spread.

    ``draft`` is the separate draft model of ``speculative_config``, if any. Counted are parameters and
    buffers after vLLM's post-processing, each rounded as torch's allocator rounds it, since vLLM reports
    the allocator's figure (utils/mem_utils.py: DeviceMemoryProfiler). Raises UsageError for a pipeline
    partition that does not fit.
    """
    key = _key(shape, args, rules, device, stage, draft)
    found = _answers.get(key)
    if found is None:
        if len(_answers) >= _KEPT:
            _answers.clear()
        found = _answers[key] = _load(launch_of(shape, args, rules, device, stage, draft))
    return found


def _key(
    shape: ModelShape, args: EngineArgs, rules: Rules, device: Device, stage: int, draft: ModelShape | None
) -> tuple[object, ...]:
    """Every argument that ``launch_of`` reads, as a tuple: cheaper to make and to hash than a Launch."""
    spec = args.speculative_config
    return (
        shape,
        draft,
        rules,
        stage,
        device.vendor,
        device.compute_capability,
        large(device),
        args.tensor_parallel_size,
        args.pipeline_parallel_size,
        args.data_parallel_size,
        args.prefill_context_parallel_size,
        args.enable_expert_parallel,
        args.quantization,
        args.dtype,
        args.runner,
        args.max_num_batched_tokens,
        leaves_towers_out(shape, args, rules),
        args.cpu_offload_gb,
        args.enable_lora and (args.max_loras, args.max_lora_rank),
        None if spec is None else str(spec.get("method")),
        args.env.get("VLLM_PP_LAYER_PARTITION"),
        args.given.get("mm_encoder_tp_mode") == "data",
    )


def _load(launch: Launch) -> LoadedWeights:
    main, drafts, quantization = assigned(launch)
    cut = cut_of(launch, quantization)
    parts = {part.value: size for part, size in stage_bytes(launch, main, cut).items()}
    if launch.last and (launch.own_draft or launch.draft is not None):
        parts[Part.DRAFT.value] = draft_bytes(launch, drafts, cut)
    if launch.lora:
        parts[Part.LORA.value] = lora_bytes(launch, cut, launch.lora, layers_on_stage(launch))
    notes: list[str] = []
    down, up = spread(launch, main, quantization, cut)
    basis = _basis(launch, parts, notes)
    if launch.offload:
        held = min(from_gib(launch.offload), sum(parts.values()) - parts.get(Part.BUFFERS.value, 0))
        parts["kept in host memory"] = -held
        notes.append(f"--cpu-offload-gb keeps {show_bytes(held)} of the weights in the host's memory.")
    total = sum(parts.values())
    listed = tuple(sorted(parts.items(), key=lambda item: -item[1]))
    return LoadedWeights(
        low=int(total * (1 - down)),
        expected=total,
        high=int(total * (1 + up)),
        basis=basis,
        parts=listed,
        why=_why(launch, quantization, listed),
        source="v1/worker/gpu_model_runner.py: load_model",
        notes=tuple(notes),
    )


def _basis(launch: Launch, parts: dict[str, int], notes: list[str]) -> str:
    """Where the number comes from; an unknown architecture is scaled to the checkpoint's own bytes."""
    if guessed_share(launch.shape.tensors) == 0:
        return "computed"
    known = launch.shape.checkpoint_bytes
    if known is None or launch.quantization or launch.element == 4:
        return "estimated"
    # the fields tell how the bytes are shared out, the headers how many there are
    whole = sum(parts.values()) * launch.tp * launch.pp
    if whole > 0:
        factor = known / whole
        parts.update({name: int(size * factor) for name, size in parts.items()})
    notes.append(f"The architecture is not known; the checkpoint's headers say {show_bytes(known)} in all.")
    return "published"


def _why(launch: Launch, quantization: Quantization | None, parts: tuple[tuple[str, int], ...]) -> str:
    """One sentence: how many parameters, how they are stored, and the largest parts."""
    stored = f"stored as {quantization.method}" if quantization is not None else "in 16 bits"
    if quantization is None and launch.element == 4:
        stored = "in float32"
    largest = ", ".join(f"{name} {show_bytes(size)}" for name, size in parts[:3] if size > 0)
    share = f" shared by {launch.tp * launch.pp} GPUs" if launch.tp * launch.pp > 1 else ""
    return f"{launch.shape.total_params / 1e9:.2f} billion parameters {stored}{share}: {largest}"
