"""How one linear layer's weights are stored: bits, scales, zero points; and the names people use for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from kvroom.errors import UsageError


class Grain(StrEnum):
    """What shares one scale."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    BLOCK = "block"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Scheme:
    """The storage format of one linear layer (or of one expert's)."""

    format: str
    """``fp8``, ``int8``, ``packed`` (integers of ``bits`` in words), ``nvfp4``, ``mxfp4``, ``mxfp8``,
    ``nf4``, ``llm.int8`` or ``gguf``."""
    bits: float
    grain: Grain
    group: int = 0
    """Inputs that share one scale (GROUP); the block's side (BLOCK). 0: all of them."""
    zeros: bool = False
    """Zero points are stored beside the scales and kept after loading."""
    act_order: bool = False
    """Inputs are permuted (GPTQ's ``desc_act``), so an index per input is kept."""
    static_input: bool = False
    """Activation scales are stored in the checkpoint."""
    online: bool = False
    """Plain weights that vLLM quantises while it loads them."""
    nested: bool = False
    """bitsandbytes' double quantisation: the scales are quantised themselves."""


FP8_TENSOR = Scheme("fp8", 8, Grain.TENSOR)
FP8_STATIC = Scheme("fp8", 8, Grain.TENSOR, static_input=True)
FP8_CHANNEL = Scheme("fp8", 8, Grain.CHANNEL)
FP8_BLOCK = Scheme("fp8", 8, Grain.BLOCK, group=128)
INT8_CHANNEL = Scheme("int8", 8, Grain.CHANNEL)
NVFP4 = Scheme("nvfp4", 4, Grain.GROUP, group=16, static_input=True)
MXFP4 = Scheme("mxfp4", 4, Grain.GROUP, group=32)
MXFP8 = Scheme("mxfp8", 8, Grain.GROUP, group=32)
NF4 = Scheme("nf4", 4, Grain.GROUP, group=64)
NF4_STORED = replace(NF4, nested=True)
"""As checkpoints are published: four logs of such launches have the scales quantised too."""
LLM_INT8 = Scheme("llm.int8", 8, Grain.CHANNEL)

GGUF_BITS = {
    "Q2_K": 2.96, "Q3_K_S": 3.41, "Q3_K_M": 3.91, "Q3_K_L": 4.27, "IQ4_XS": 4.32, "IQ4_NL": 4.56,
    "Q4_0": 4.55, "Q4_1": 5.0, "Q4_K_S": 4.58, "Q4_K_M": 4.85, "Q5_0": 5.54, "Q5_K_S": 5.54, "Q5_K_M": 5.69,
    "Q6_K": 6.56, "Q8_0": 8.5, "F16": 16.0, "BF16": 16.0,
}  # fmt: skip
"""Bits per weight that llama.cpp reports for whole files of each quantisation type."""

NAMES: dict[str, tuple[str, Scheme]] = {
    "fp8": ("fp8", FP8_TENSOR),
    "fp8-dynamic": ("compressed-tensors", FP8_CHANNEL),
    "fp8-channel": ("compressed-tensors", FP8_CHANNEL),
    "fp8-block": ("fp8", FP8_BLOCK),
    "awq": ("awq", Scheme("packed", 4, Grain.GROUP, group=128, zeros=True)),
    "gptq": ("gptq", Scheme("packed", 4, Grain.GROUP, group=128)),
    "gptq-int8": ("gptq", Scheme("packed", 8, Grain.GROUP, group=128)),
    "auto-round": ("auto-round", Scheme("packed", 4, Grain.GROUP, group=128)),
    "int4": ("compressed-tensors", Scheme("packed", 4, Grain.GROUP, group=128)),
    "w4a16": ("compressed-tensors", Scheme("packed", 4, Grain.GROUP, group=128)),
    "w8a16": ("compressed-tensors", Scheme("packed", 8, Grain.CHANNEL)),
    "w8a8": ("compressed-tensors", INT8_CHANNEL),
    "int8": ("compressed-tensors", INT8_CHANNEL),
    "nvfp4": ("modelopt_fp4", NVFP4),
    "mxfp4": ("mxfp4", MXFP4),
    "mxfp8": ("modelopt_mxfp8", MXFP8),
    "bitsandbytes": ("bitsandbytes", NF4_STORED),
    "bnb": ("bitsandbytes", NF4_STORED),
    "nf4": ("bitsandbytes", NF4_STORED),
}
"""The names that ``--assume-quantization`` takes: vLLM's method and the scheme."""
ONLINE: dict[str, tuple[str, Scheme]] = {
    "fp8": ("fp8", replace(FP8_TENSOR, online=True)),
    "fp8_per_tensor": ("fp8", replace(FP8_TENSOR, online=True)),
    "fp8_per_channel": ("fp8", replace(FP8_CHANNEL, online=True)),
    "fp8_per_block": ("fp8", replace(FP8_BLOCK, online=True)),
    "ptpc_fp8": ("ptpc_fp8", replace(FP8_CHANNEL, online=True)),
    "fbgemm_fp8": ("fbgemm_fp8", replace(FP8_CHANNEL, online=True)),
    "mxfp8": ("mxfp8", replace(MXFP8, online=True)),
    "mxfp4": ("mxfp4", replace(MXFP4, online=True)),
    "bitsandbytes": ("bitsandbytes", replace(NF4, online=True)),
    "experts_int8": ("experts_int8", replace(INT8_CHANNEL, online=True)),
}
"""What ``--quantization`` does to a plain checkpoint while loading it."""


def named_scheme(name: str) -> tuple[str, Scheme]:
    """The method and scheme that ``name`` means; raises UsageError for a name that is none.

    >>> named_scheme("gguf:Q4_K_M")[1].bits
    4.85
    """
    key = name.strip().lower().replace("_", "-")
    if key.startswith("gguf"):
        kind = (name.partition(":")[2] or "Q4_K_M").strip().upper()
        if kind in GGUF_BITS:
            return "gguf", Scheme("gguf", GGUF_BITS[kind], Grain.GROUP, group=256)
        raise UsageError(f"'{kind[:40]}' is not a GGUF type that is known.", f"Known: {', '.join(GGUF_BITS)}.")
    if key in NAMES:
        return NAMES[key]
    raise UsageError(
        f"'{name[:40]}' is not a quantisation that can be assumed.",
        f"Known: {', '.join(NAMES)}, gguf:TYPE.",
    )
