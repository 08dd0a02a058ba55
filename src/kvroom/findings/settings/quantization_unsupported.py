"""KVR162: a quantisation method that the card cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR162",
    "quantization-unsupported-on-gpu",
    Severity.ERROR,
    "The quantisation method needs a newer GPU.",
    explanation(
        what="""
            Compares the compute capability of the GPU with the least that the release asks for the
            quantisation method of the checkpoint or of `--quantization`.
            """,
        why="vLLM stops before it loads the weights.",
        example="""
            An AWQ checkpoint on a V100 (7.0): AWQ kernels need 7.5.
            FP8 weights on an RTX 2080 Ti (7.5): refused up to vLLM 0.13, weight-only since 0.14.
            """,
        cure="""
            Another quantisation of the same model: GPTQ runs from 6.0, bitsandbytes and compressed-tensors
            from 7.0.
            """,
        since="By method and release.",
        references="`vllm/model_executor/layers/quantization: get_min_capability`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the card's compute capability is below the method's least."""
    setup = prediction.setup
    capability, stored = setup.machine.device.compute_capability, setup.shape.quantization
    method = setup.args.quantization or (stored.method if stored is not None else None)
    if capability is None or method is None or setup.machine.device.vendor != "NVIDIA":
        return
    least = prediction.rules["quantization_min_capability"].get(method)
    have = capability[0] * 10 + capability[1]
    if least is None or have >= least:
        return
    evidence = flag("quantization", method) if setup.args.quantization else Evidence(f"quant_method: {method}")
    yield RULE.found(
        f"{method} needs compute capability {least // 10}.{least % 10} in vLLM {setup.release}; "
        f"{setup.machine.device.name} has {capability[0]}.{capability[1]}.",
        evidence=(evidence,),
        advice=("Use a checkpoint in another quantisation, or a newer card.",),
    )
