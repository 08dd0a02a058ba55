"""How far the logged weights of real launches lie from the computed ones."""

from __future__ import annotations

from kvroom.models.quantization import Quantization
from kvroom.models.weights.assignment import Stored
from kvroom.models.weights.storage import Cut
from kvroom.models.weights.tensor import guessed_share
from kvroom.vllm.weights.launch import Launch, mxfp4_kernels, padded
from kvroom.vllm.weights.stage import stage_bytes

FORMATS: dict[str, tuple[float, float]] = {
    "fp8": (0.002, 0.004),
    "int8": (0.004, 0.008),
    "packed": (0.004, 0.008),
    "nvfp4": (0.02, 0.025),
    "mxfp4": (0.003, 0.005),
    "mxfp8": (0.01, 0.02),
    "nf4": (0.02, 0.03),
    "llm.int8": (0.03, 0.05),
    "gguf": (0.07, 0.07),
}
"""Spread below and above by storage format: what kernels repack and which modules files leave plain. Of 13 public
launches of fp8, AWQ, GPTQ and w4a16 on NVIDIA cards, 12 lay within 0.25 %."""
PLAIN = (0.002, 0.002)
"""Plain weights: of 36 public launches on NVIDIA cards, 33 lay within 0.21 % and all within 0.6 %."""
UNKNOWN = (0.25, 0.25)
"""An architecture priced from its fields alone."""
ASSUMED = (0.003, 0.006)
"""More for a checkpoint that was not at hand: group size and exceptions may differ."""
ASSUMED_MIXED = (0.008, 0.045)
"""The same where a model has experts, states or a vision tower, of which files leave more or less plain."""
UNLISTED = 0.18
"""More above for a config that names no module left plain, as abridged copies do."""
OTHER_VENDORS = (0.003, 0.018)
"""More outside NVIDIA, whose kernels the rules were read for."""
EXTRAS = (0.005, 0.01)
"""More with adapters or a draft model."""


def spread(
    launch: Launch, stored: tuple[Stored, ...], quantization: Quantization | None, cut: Cut
) -> tuple[float, float]:
    """The relative spread below and above the expected bytes."""
    guessed = guessed_share(launch.shape.tensors)
    scheme = quantization.scheme if quantization is not None else None
    extra = [PLAIN if scheme is None else FORMATS.get(scheme.format, (0.05, 0.05))]
    if quantization is not None and quantization.method == "mxfp4":
        extra.append(kernel_spread(launch, stored, cut))
    if quantization is not None and quantization.assumed:
        mixed = launch.shape.is_moe or launch.shape.has_state or launch.shape.vision is not None
        extra.append(ASSUMED_MIXED if mixed else ASSUMED)
    if quantization is not None and quantization.unlisted:
        extra.append((0.0, UNLISTED))
    if launch.vendor not in ("NVIDIA", ""):
        extra.append(OTHER_VENDORS)
    if launch.lora or launch.own_draft or launch.draft is not None:
        extra.append(EXTRAS)
    if guessed:
        extra.append((guessed * UNKNOWN[0], guessed * UNKNOWN[1]))
    return min(sum(down for down, _ in extra), 0.9), sum(up for _, up in extra)


def kernel_spread(launch: Launch, stored: tuple[Stored, ...], cut: Cut) -> tuple[float, float]:
    """What the choice of the mxfp4 kernel leaves open: the least and the most that any of them pads."""
    base = sum(stage_bytes(launch, stored, cut).values())
    table = launch.rules["mxfp4_padding"]
    cuts = [padded(cut, table[name]) for name in mxfp4_kernels(launch)]
    sizes = [sum(stage_bytes(launch, stored, each).values()) for each in cuts]
    return max(0.0, 1 - min(sizes) / base), max(0.0, max(sizes) / base - 1)
