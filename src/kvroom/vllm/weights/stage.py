"""Bytes that one pipeline stage of one launch holds, by part."""

from __future__ import annotations

from dataclasses import replace

from kvroom.models.weights.assignment import Stored, assign
from kvroom.models.weights.storage import Cut, block_bytes, padded_bias, plain_bytes, quantised_bytes
from kvroom.models.weights.tensor import Part, Place, Tensor
from kvroom.vllm.parallel import stage_layers
from kvroom.vllm.weights.launch import Launch


def stored_bytes(stored: Stored, cut: Cut, layers: int) -> int:
    """Bytes of ``layers`` layers' worth of ``stored`` on a rank, rounded as the allocator rounds."""
    tensor, scheme = stored.tensor, stored.scheme
    if scheme is None:
        bias = tensor.experts and tensor.path.endswith(".bias") and cut.expert_rounding != (1, 1)
        size, count = padded_bias(tensor, cut) if bias else plain_bytes(tensor, cut)
        return (size if cut.created else block_bytes(size)) * count * layers
    weight, extra, count = quantised_bytes(tensor, scheme, cut)
    if cut.created:
        return (weight + extra) * count * layers
    return (block_bytes(weight) + block_bytes(extra)) * count * layers


def stage_bytes(launch: Launch, stored: tuple[Stored, ...], cut: Cut) -> dict[Part, int]:
    """Bytes of the main model's weights on the launch's stage, by part."""
    own = None if launch.pp == 1 else frozenset(layers_on_stage(launch))
    whole = replace(cut, tp=1) if launch.towers_whole else cut
    absorbed = any(entry.scheme is not None and entry.tensor.path.endswith("kv_b_proj") for entry in stored)
    parts: dict[Part, int] = {}
    for entry in stored:
        tensor = entry.tensor
        count = len(entry.layers) or 1
        if tensor.layers and own is not None:
            count = sum(1 for layer in entry.layers if layer in own)
        if not count or skipped(tensor, launch):
            continue
        if tensor.part is Part.ABSORBED and not absorbed:
            continue  # views of plain weights; copies only of dequantised ones
        size = stored_bytes(entry, whole if tensor.part is Part.VISION else cut, count)
        if tensor.part is Part.BUFFERS:
            size *= repeats(tensor, launch, cut)
        parts[tensor.part] = parts.get(tensor.part, 0) + size
    return parts


def repeats(tensor: Tensor, launch: Launch, cut: Cut) -> int:
    """How many times a buffer's listed size is held: multimodal positions, buffers a token."""
    if tensor.path == "rotary.mrope":
        factors = launch.rules["mrope_factor"]
        return int(factors.get(launch.shape.architecture, factors["default"]))
    if tensor.path.startswith("tokens."):
        return 0 if cut.created else launch.batched_tokens
    return 1


def skipped(tensor: Tensor, launch: Launch) -> bool:
    """Whether the launch's stage does not load ``tensor``."""
    if tensor.path.startswith("unused."):
        return True
    if tensor.path.startswith("rotary.") and launch.shape.architecture in launch.rules["transformers_rope"]:
        return True
    if tensor.part is Part.LM_HEAD and launch.pooling:
        return True
    if tensor.part is Part.VISION and launch.language_only:
        return True
    if tensor.tied:
        return launch.first or not launch.last
    return (tensor.place is Place.FIRST and not launch.first) or (tensor.place is Place.LAST and not launch.last)


def layers_on_stage(launch: Launch) -> range:
    """The decoder layers of the launch's stage; raises UsageError for a partition that does not fit."""
    return stage_layers(launch.shape.layers, launch.pp, launch.partition)[launch.stage]


def draft_bytes(launch: Launch, drafts: tuple[Stored, ...], cut: Cut) -> int:
    """Bytes of what speculates on the last stage: the checkpoint's own layers, or a separate model.

    A separate model that takes the target's embedding (EAGLE and its relatives) has none of its own.
    """
    total = 0
    if launch.own_draft:
        kept = [entry for entry in drafts if not entry.tensor.path.endswith("W_UK_UV")]
        total += sum(stored_bytes(entry, cut, len(entry.layers) or 1) for entry in kept)
    if launch.draft is None:
        return total
    cut = replace(cut, expert_rounding=(1, 1), value_padding=1)
    for entry in assign(launch.draft.tensors, launch.draft.quantization):
        tensor = entry.tensor
        if tensor.tied or tensor.part is Part.ABSORBED or tensor.path.startswith(("unused.", "tokens.")):
            continue
        if tensor.part is Part.EMBEDDING and launch.shared_embedding:
            continue
        total += stored_bytes(entry, cut, len(entry.layers) or 1)
    return total
