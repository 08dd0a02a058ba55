"""Bytes of one weight on one rank, in the format that the engine keeps after loading."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from kvroom.models.schemes import Grain, Scheme
from kvroom.models.weights.tensor import Shard, Tensor
from kvroom.units import MIB, cdiv

FIXED = {"float32": 4, "int32": 4}
"""Bytes an element of the dtypes that a model fixes."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One rank's share and the storage rules that hold on it."""

    tp: int = 1
    moe_tp: int = 1
    """Ranks that divide one expert's width: 1 with expert parallelism."""
    ep: int = 1
    """Ranks that share the experts."""
    element: int = 2
    """Bytes of the launch dtype."""
    vocab_padding: int = 64
    lora_vocab: int = 0
    """Rows that LoRA adds to the embeddings."""
    expert_rounding: tuple[int, int] = (1, 1)
    """Multiples to which an mxfp4 expert's intermediate and hidden sizes are padded."""
    value_padding: int = 1
    """Multiple to which the values (not the scales) of mxfp4 experts are padded by the kernel's layout."""
    marlin: bool = False
    """fp8 and fp4 weights run on Marlin, which expands the scales to the launch dtype."""
    scale_tiles: bool = False
    """nvfp4 scales are padded to tiles of 128 x 4."""
    keep_zeros: bool = False
    """GPTQ's own kernel keeps the zero points that Marlin drops for symmetric weights."""
    nested_scales: bool = False
    """bitsandbytes' nested scales stay nested."""
    created: bool = False
    """As the layers are created, before vLLM post-processes them (what a trace without kernels shows)."""


def rank_sizes(tensor: Tensor, cut: Cut) -> tuple[tuple[int, ...], int, int]:
    """Output parts, input features and copies a layer that this rank holds of ``tensor``."""
    out, inp, copies = tensor.out, tensor.inp, tensor.copies
    ways = cut.moe_tp if tensor.experts else cut.tp
    if tensor.experts:
        copies = cdiv(copies, cut.ep)
    if tensor.shard is Shard.COLUMN:
        if tensor.units and not tensor.experts:
            out = tuple(size // unit * max(1, cdiv(unit, ways)) for size, unit in zip(out, tensor.units, strict=True))
        else:
            out = tuple(cdiv(size, ways) for size in out)
    elif tensor.shard is Shard.ROW:
        inp = cdiv(inp, ways)
    elif tensor.shard is Shard.VOCAB:
        padding = cut.vocab_padding
        rows = cdiv(out[0], padding) * padding
        if cut.lora_vocab:
            rows = cdiv(rows + cut.lora_vocab, padding) * padding
        out = (cdiv(rows, ways),)
    return out, inp, copies


def plain_bytes(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    """Bytes of one parameter of ``tensor`` unquantised, and how many such parameters a layer has."""
    out, inp, copies = rank_sizes(tensor, cut)
    size = FIXED.get(tensor.dtype or "", cut.element)
    if tensor.experts:
        return sum(out) * inp * size * copies, 1
    return sum(out) * inp * size, copies


def quantised_bytes(tensor: Tensor, scheme: Scheme, cut: Cut) -> tuple[int, int, int]:
    """(weights, scales and the like, parameters a layer) of ``tensor`` under ``scheme``, bytes of one."""
    out, inp, copies = rank_sizes(tensor, cut)
    values = 0
    if scheme.format == "mxfp4" and tensor.experts:
        out, inp, values = _padded_experts(tensor, out, inp, cut)
    weight, extra = _linear(out, inp, scheme, cut)
    if tensor.experts and scheme.grain is Grain.BLOCK and not cut.marlin:
        side = gcd(scheme.group, inp if tensor.shard is Shard.ROW else out[0])  # refined to the rank's share
        extra = 4 * sum(cdiv(size, side) for size in out) * cdiv(inp, side)
    elif tensor.experts and scheme.format == "nvfp4" and cut.created and not scheme.static_input:
        extra += 2 * len(out)  # experts hold input scales either way
    weight = max(weight, values)
    if tensor.experts:
        return weight * copies, extra * copies, 1
    return weight, extra, copies


def padded_bias(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    """As ``plain_bytes`` for the bias of mxfp4 experts, which is padded with them."""
    out, inp, copies = rank_sizes(tensor, cut)
    out, _, _ = _padded_experts(tensor, out, inp, cut)
    return sum(out) * cut.element * copies, 1


def _padded_experts(tensor: Tensor, out: tuple[int, ...], inp: int, cut: Cut) -> tuple[tuple[int, ...], int, int]:
    """Sizes of an expert's weight after the kernel's rounding, and its value bytes where only those grow."""
    inner, hidden = cut.expert_rounding
    row = tensor.path.endswith(("w2", "w2.bias"))
    out = tuple(cdiv(size, hidden if row else inner) * (hidden if row else inner) for size in out)
    if not tensor.path.endswith(".bias"):
        step = inner if row else hidden
        inp = cdiv(inp, step) * step
    step = cut.value_padding
    return out, inp, sum(out) * (cdiv(inp, step) * step) // 2 if step > 1 else 0


def _linear(out: tuple[int, ...], inp: int, scheme: Scheme, cut: Cut) -> tuple[int, int]:
    """(weight bytes, bytes of scales, zeros and indexes) of one linear layer on this rank."""
    total, parts = sum(out), len(out)
    elements = total * inp
    kind = scheme.format
    if scheme.online and cut.created:
        return elements * cut.element, 0
    if kind in ("fp8", "int8", "llm.int8"):
        return elements, _eight_bit_scales(total, parts, inp, scheme, cut)
    if kind == "packed":
        return _packed(total, inp, scheme, cut)
    if kind == "nvfp4":
        rows, blocks = total, inp // 16
        if cut.scale_tiles and not cut.created:
            rows, blocks = cdiv(rows, 128) * 128, cdiv(blocks, 4) * 4
        scalars = parts * (8 if scheme.static_input else 6) if cut.created else 16
        return elements // 2, rows * blocks + scalars
    if kind == "mxfp4":
        return elements // 2, total * (inp // 32)
    if kind == "mxfp8":
        return elements, total * cdiv(inp, 32)
    if kind == "nf4":
        return elements // 2, _block_scales(elements, scheme, cut)
    return int(elements * scheme.bits / 8), 0


def _block_scales(elements: int, scheme: Scheme, cut: Cut) -> int:
    """Scales of bitsandbytes' blocks of 64: float32, or 8 bits with a second level where they stay nested."""
    blocks = cdiv(elements, 64)
    if scheme.nested and cut.nested_scales:
        return blocks + 4 * cdiv(blocks, 256) + 1024
    return 4 * blocks


def _eight_bit_scales(total: int, parts: int, inp: int, scheme: Scheme, cut: Cut) -> int:
    """Scales of fp8 and int8 weights: float32, or the launch dtype a channel under Marlin."""
    marlin = cut.marlin and scheme.format == "fp8" and not cut.created
    if scheme.grain is Grain.BLOCK:
        side = scheme.group
        return total * cdiv(inp, side) * cut.element if marlin else 4 * cdiv(total, side) * cdiv(inp, side)
    if marlin:
        return total * cut.element
    inputs = 4 * (parts if cut.created else 1) if scheme.static_input else 0
    if scheme.grain is Grain.CHANNEL:
        return 4 * total + inputs
    return 4 * (parts if cut.created else 1) + inputs


def _packed(total: int, inp: int, scheme: Scheme, cut: Cut) -> tuple[int, int]:
    """Packed integers: scales in the launch dtype a group, zero points and index where they are kept."""
    bits = scheme.bits
    groups = cdiv(inp, scheme.group) if scheme.group else 1
    scales = total * groups * cut.element
    kept = scheme.zeros or (scheme.grain is Grain.GROUP and (cut.created or cut.keep_zeros))
    zeros = int(total * groups * bits / 8) if kept else 0
    index = 4 * inp * (1 if cut.created else 2) if scheme.act_order else 0
    return int(total * inp * bits / 8), scales + zeros + index


def block_bytes(size: int) -> int:
    """What torch's caching allocator counts for one allocation of ``size`` bytes.

    Sizes are rounded to 512; from 10 MiB on an allocation gets a segment of its own, rounded to 2 MiB,
    whose rest is split off only when it is larger than 1 MiB (c10/cuda/CUDACachingAllocator.cpp:
    get_allocation_size, should_split). Smaller ones share segments and leave little.

    >>> block_bytes(1), block_bytes(11 * MIB) // MIB, block_bytes(10 * MIB + 512 * 1024) // MIB
    (512, 12, 10)
    """
    rounded = cdiv(size, 512) * 512
    if rounded < 10 * MIB:
        return rounded
    segment = cdiv(rounded, 2 * MIB) * 2 * MIB
    return segment if segment - rounded <= MIB else rounded
