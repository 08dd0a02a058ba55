"""What leaves the budget beside weights and activations: non-torch memory, workspaces, CUDA graphs."""

from __future__ import annotations

from kvroom.devices.device import Device
from kvroom.ledger.entries import Basis, Entry, exact
from kvroom.ledger.estimate import Estimate, gibibytes, scaled
from kvroom.models.shape import ModelShape
from kvroom.units import MIB, show_bytes
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.settings import Settings

_PIECEWISE = 7.0 * MIB
_FULL = 7.0 * MIB
"""Bytes a captured graph, fitted: 51 piecewise and 35 full graphs of an 8B model log 0.73 GiB."""


def non_torch(shape: ModelShape, args: EngineArgs, settings: Settings, device: Device) -> Entry:
    """The ``other`` entry: CUDA modules, NCCL and all-reduce buffers."""
    rules = settings.rules
    world = ranks(shape, args)
    if device.vendor == "AMD":
        rule = rules.rule("non_torch_gib_amd")
        estimate = gibibytes(*rule.value["parallel" if world > 1 else "1"])
        words = "HIP modules, workspaces" + (f" and RCCL buffers of {world} GPUs" if world > 1 else "")
    elif world > 1:
        rule = rules.rule("non_torch_gib_parallel")
        estimate = gibibytes(*rule.value["2" if world <= 2 else "4" if world <= 4 else "8"])
        words = f"NCCL and all-reduce buffers of {world} GPUs, CUDA modules"
    else:
        rule = rules.rule("non_torch_gib_one_gpu")
        one = rule.value
        extra = rules["non_torch_gib_hopper_extra"] if (device.compute_capability or (0, 0)) >= (9, 0) else 0
        estimate = gibibytes(one["low"], one["expected"] + extra, one["high"] + extra)
        words = "CUDA modules and cuBLAS workspaces"
    source = rule.source
    if device.unified:
        # Whatever else uses the shared memory while vLLM profiles is charged to it.
        estimate = estimate.plus(gibibytes(*rules["non_torch_gib_unified_extra"]))
        words += "; other use of the unified memory during profiling"
    return Entry("other", int(estimate.low), int(estimate.expected), int(estimate.high), Basis.ESTIMATED, words, source)


def ranks(shape: ModelShape, args: EngineArgs) -> int:
    """How many GPUs talk to each other: replicas of a model without experts do not."""
    world = args.tensor_parallel_size * args.pipeline_parallel_size
    return world * args.data_parallel_size if shape.is_moe else world


def counts_graphs(args: EngineArgs, settings: Settings, device: Device) -> bool:
    """Whether this launch subtracts an estimate of its CUDA graphs from the budget."""
    if device.vendor not in settings.rules["cudagraph_estimate_vendors"]:
        return False
    mode = settings.rules["cudagraph_estimate"]
    switch = args.env.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")
    on = switch not in {"0", "false", "False"} if mode == "default" else switch in {"1", "true", "True"}
    if mode == "none" or not on or not settings.capture_sizes:
        return False
    return settings.model_runner != "V2" or bool(settings.rules["cudagraph_estimate_v2_runner"])


def graph_memory(shape: ModelShape, args: EngineArgs, settings: Settings) -> Estimate:
    """Bytes of the captured graphs as the release's estimator would extrapolate them."""
    sizes = settings.capture_sizes
    if not sizes:
        return Estimate(0.0, 0.0, 0.0)
    mode = settings.cudagraph_mode
    widest_decode = settings.max_num_seqs * (1 + settings.speculative_tokens)
    decode = sum(1 for size in sizes if size <= widest_decode)
    full = len(sizes) if mode == "FULL" else decode if mode.startswith("FULL") else 0
    piecewise = len(sizes) if "PIECEWISE" in mode else 0
    depth = (max(shape.layers, 1) / args.pipeline_parallel_size / 36) ** 0.5
    spread = (0.3, 3.5) if shape.is_moe or shape.has_state else (0.4, 2.2)
    sets = settings.rules["cudagraph_sets_with_lora"] if args.enable_lora else 1
    return scaled((piecewise * _PIECEWISE + full * _FULL) * depth * sets, *spread)


def cuda_graphs(shape: ModelShape, args: EngineArgs, settings: Settings, device: Device) -> Entry:
    """The ``cuda_graphs`` entry: what is subtracted from the budget, zero where the release does not."""
    rule = settings.rules.rule("cudagraph_estimate")
    if not settings.capture_sizes:
        return exact("cuda_graphs", 0, Basis.COMPUTED, "no graphs are captured (eager)", rule.source)
    if not counts_graphs(args, settings, device):
        return exact(
            "cuda_graphs",
            0,
            Basis.COMPUTED,
            f"not in the budget here: about {show_bytes(graph_memory(shape, args, settings).expected)} is taken "
            "after the KV cache, outside it",
            rule.source,
        )
    estimate = graph_memory(shape, args, settings)
    return Entry(
        "cuda_graphs",
        int(estimate.low),
        int(estimate.expected),
        int(estimate.high),
        Basis.ESTIMATED,
        f"vLLM's own estimate for {len(settings.capture_sizes)} capture sizes up to {max(settings.capture_sizes)}",
        rule.source,
    )
