"""Which scheme each weight of a model is stored in, layer by layer, grouped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.models.quantization import Quantization, bare
from kvroom.models.schemes import Scheme
from kvroom.models.weights.tensor import Part, Tensor

FUSED: dict[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value"),
    "kv_proj": ("k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj", "gate_up_proj"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa", "fused_qkv_a_proj"),
    "fused_wqa_wkv": ("wq_a", "wkv"),
    "in_proj_qkvz": ("in_proj_qkvz", "in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_ba", "in_proj_b", "in_proj_a"),
}
"""Modules that vLLM fuses and the names that checkpoints give their parts."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A weight, the scheme it is stored in (None: plain), and the layers where that is so."""

    tensor: Tensor
    scheme: Scheme | None
    layers: Sequence[int]


def checkpoint_names(path: str, layer: int, experts: bool) -> tuple[str, ...]:
    """The names under which a checkpoint may list the module at ``path`` in ``layer``.

    >>> checkpoint_names("model.layers.N.self_attn.kv_proj", 3, False)
    ('layers.3.self_attn.k_proj', 'layers.3.self_attn.v_proj')
    """
    name = bare(path).replace(".N.", f".{layer}.", 1)
    stem, _, leaf = name.rpartition(".")
    if experts:
        ends = ("gate_proj", "up_proj", "w1", "w3") if leaf == "w13" else ("down_proj", "w2")
        return (stem, *(f"{stem}.0.{end}" for end in ends))
    fused = FUSED.get(leaf)
    return (name,) if fused is None else tuple(f"{stem}.{part}" for part in fused)


def assign(tensors: Sequence[Tensor], quantization: Quantization | None) -> tuple[Stored, ...]:
    """Every weight with its scheme; a weight whose layers differ is listed once for each scheme."""
    if quantization is None:
        return tuple(Stored(tensor, None, tensor.layers) for tensor in tensors)
    stored: list[Stored] = []
    for tensor in tensors:
        if not may_be_quantised(tensor, quantization):
            stored.append(Stored(tensor, None, tensor.layers))
            continue
        groups: dict[Scheme | None, list[int]] = {}
        for layer in tensor.layers or (0,):
            names = checkpoint_names(tensor.path, layer, tensor.experts)
            head = tensor.part is Part.LM_HEAD
            scheme = quantization.scheme_for(names, expert=tensor.experts, head=head)
            groups.setdefault(scheme, []).append(layer)
        for scheme, layers in groups.items():
            stored.append(Stored(tensor, scheme, tuple(layers) if tensor.layers else ()))
    return tuple(stored)


def may_be_quantised(tensor: Tensor, quantization: Quantization) -> bool:
    """Whether the method can touch ``tensor`` at all."""
    gguf = quantization.scheme is not None and quantization.scheme.format == "gguf"
    if gguf and tensor.part in (Part.EMBEDDING, Part.LM_HEAD) and tensor.inp > 1:
        return True
    if not tensor.quantisable:
        return False
    return not (tensor.part is Part.VISION and quantization.plain_towers)
