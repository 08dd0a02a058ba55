"""The files of a model's repository that planners read, made from its config alone.

Planners read the sizes of a checkpoint off its safetensors headers. No launch of the corpus has its files at hand, so
the header is written from kvroom's own list of the model's weights and how they are stored: what the file would say,
give or take what a publisher left plain or added. Layers that only speculate (multi-token prediction) are in it where
the launch loads them, so that no planner is wrong for counting what a file has and a launch leaves out.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from kvroom.models import catalogue
from kvroom.models.kin import find_kin
from kvroom.models.quantization import Quantization
from kvroom.models.schemes import Scheme
from kvroom.models.shape import ModelShape
from kvroom.models.weights.assignment import FUSED, Stored, assign
from kvroom.models.weights.storage import Cut, quantised_bytes

SHARD = "model-00001-of-00001.safetensors"
INDEX = "model.safetensors.index.json"
ELEMENT = {"F32": 4, "I32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1}
"""Bytes an element of safetensors' dtypes."""
_PLAIN = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
_VALUES = {"fp8": "F8_E4M3", "mxfp8": "F8_E4M3", "int8": "I8", "llm.int8": "I8", "packed": "I32"}
_SCALES = {"fp8": "F32", "int8": "F32", "llm.int8": "F32", "packed": "F16", "nvfp4": "F8_E4M3"}
"""By format; the others are bytes."""
_STORED: dict[str, dict[str, Any]] = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "mxfp4": {"quant_method": "mxfp4"},
}
"""What a config.json says of how its checkpoint is stored, where a stand-in's does not."""
_PACKED = {
    "nvfp4": "nvfp4-pack-quantized",
    "packed": "pack-quantized",
    "fp8": "float-quantized",
    "int8": "int-quantized",
}
"""Formats of compressed-tensors."""


@dataclass(frozen=True, slots=True)
class Repository:
    """What a hub has of one model: small files by name, and the header of its one file of weights."""

    files: Mapping[str, bytes]
    header: bytes
    size: int
    """Bytes of the file of weights."""
    elements: Mapping[str, int]
    """Elements by safetensors dtype."""


def repository(
    config: Mapping[str, Any], shape: ModelShape, hf_quant_config: Mapping[str, Any] | None, *, speculates: bool = False
) -> Repository:
    """The repository of a model with ``config``, of which ``shape`` was read; ``speculates``: with its own layers."""
    tensors = dict(stored_tensors(shape, speculates=speculates))
    offset, header = 0, {}
    elements: dict[str, int] = {}
    for name, (dtype, sizes) in tensors.items():
        end = offset + prod(sizes) * ELEMENT[dtype]
        header[name] = {"dtype": dtype, "shape": list(sizes), "data_offsets": [offset, end]}
        offset = end
        elements[dtype] = elements.get(dtype, 0) + prod(sizes)
    text = json.dumps(header).encode()
    index = {"metadata": {"total_size": offset}, "weight_map": dict.fromkeys(tensors, SHARD)}
    files = {"config.json": json.dumps(dict(config)).encode(), INDEX: json.dumps(index).encode()}
    if hf_quant_config is not None:
        files["hf_quant_config.json"] = json.dumps(dict(hf_quant_config)).encode()
    return Repository(files, struct.pack("<Q", len(text)) + text, 8 + len(text) + offset, elements)


def config_of(
    model: str, shape: ModelShape, overrides: Mapping[str, Any] | None
) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """config.json and hf_quant_config.json of the packaged model that kvroom planned ``model`` with.

    A stand-in's says how ``model`` itself is stored, as its own would.
    """
    entry = catalogue.find(model)
    config: dict[str, Any] = {}
    if entry is None:
        kin = find_kin(model)
        if kin is None:
            raise KeyError(model)
        entry = kin.entry
        config = {} if kin.positions is None else {"max_position_embeddings": kin.positions}
    config = {**entry.config, **config, **(overrides or {})}
    if shape.quantization is not None and shape.quantization.assumed:
        said = said_of(shape.quantization)
        return {**config, **({"quantization_config": said} if said else {})}, None
    return config, entry.hf_quant_config


def said_of(quantization: Quantization) -> dict[str, Any] | None:
    """The ``quantization_config`` of a checkpoint stored so, None where such files have none (GGUF)."""
    scheme = quantization.scheme
    if quantization.method in _STORED or scheme is None:
        return _STORED.get(quantization.method)
    if scheme.format not in _PACKED:
        return None
    kind = "float" if scheme.format in ("fp8", "nvfp4") else "int"
    weights = {"num_bits": int(scheme.bits), "type": kind, "strategy": str(scheme.grain), "group_size": scheme.group}
    inputs = None if scheme.format == "packed" else {"num_bits": int(scheme.bits), "type": kind, "dynamic": True}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}}
    packed = _PACKED[scheme.format]
    return {"quant_method": "compressed-tensors", "format": packed, "config_groups": groups, "ignore": ["lm_head"]}


def stored_tensors(shape: ModelShape, *, speculates: bool = False) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    """Every tensor of the checkpoint: name, safetensors dtype, sizes. Experts of a layer are one tensor."""
    plain = _PLAIN.get(shape.dtype, "BF16")
    quantization = shape.quantization
    # files leave the layers that speculate plain where nothing says otherwise
    unsaid = quantization is not None and (quantization.assumed or quantization.unlisted)
    drafts = assign(shape.draft_tensors, None if unsaid else quantization) if speculates else ()
    for each in (*assign(shape.tensors, quantization), *drafts):
        if not each.tensor.counted:
            continue
        for layer in each.layers or (None,):
            path = each.tensor.path if layer is None else each.tensor.path.replace(".N.", f".{layer}.", 1)
            if each.scheme is None or each.scheme.online:
                yield from _plain(path, each, plain)
            else:
                yield from _quantised(path, each, each.scheme)


def _plain(path: str, each: Stored, dtype: str) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    tensor = each.tensor
    bias = path.endswith(".bias")
    stem, _, leaf = path.removesuffix(".bias").rpartition(".")
    parts = FUSED.get(leaf, ())
    names = parts[: len(tensor.out)] if len(tensor.out) > 1 and len(parts) >= len(tensor.out) else ()
    pieces = zip(names, tensor.out, strict=True) if names else [(leaf, sum(tensor.out))]
    for name, rows in pieces:
        sizes = (rows,) if tensor.inp == 1 else (rows, tensor.inp)
        if tensor.copies > 1:
            sizes = (tensor.copies, *sizes)
        whole = f"{stem}.{name}" if stem else name
        yield f"{whole}.{'bias' if bias else 'weight'}", (_PLAIN.get(tensor.dtype or "", dtype), sizes)


def _quantised(path: str, each: Stored, scheme: Scheme) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    weight, extra, copies = quantised_bytes(each.tensor, scheme, Cut(vocab_padding=1, created=True, nested_scales=True))
    for name, size, dtype in (
        ("weight", weight * copies, _VALUES.get(scheme.format, "U8")),
        ("weight_scale", extra * copies, _SCALES.get(scheme.format, "U8")),
    ):
        if size:
            yield f"{path}.{name}", (dtype, (max(1, size // ELEMENT[dtype]),))
