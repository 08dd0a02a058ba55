"""KVR239: quantised weights run on a weight-only kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import overflow, shortage
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR239",
    "marlin-fallback",
    Severity.WARNING,
    "FP8 or FP4 weights run on Marlin, which unpacks them and computes in 16 bit.",
    explanation(
        what="""
            Reports NVFP4, MXFP4 or FP8 weights on the Marlin kernel, by vLLM's warning that the card lacks the
            format or by the line that names the kernel of the experts.
            """,
        why="""
            Marlin stores the weights in its own order, padded to its tiles, and repacks them while loading;
            that can take more memory than the checkpoint, on the card and for a moment beside it.
            Activations stay in 16 bit: less memory traffic, but none of the faster arithmetic that the format
            is meant for.
            """,
        example="""
            gpt-oss-120b takes 65.97 GiB with Marlin and 64.38 GiB with Triton's kernel; an NVFP4 model on an
            image without native FP4 loaded 100.59 GiB instead of about 74.
            """,
        cure="""
            A build and card with native kernels for the format, or a checkpoint in a format that the card has
            (INT4 for Ampere).
            """,
        since="FP8 since 0.5, FP4 since 0.9.",
        references="`vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py`, `marlin_utils_fp8.py`",
    ),
)
_FORMATS = ("nvfp4", "mxfp4", "fp8", "mxfp8")


def find(case: Case) -> Iterator[Finding]:
    """The finding for such weights: a warning where memory ran short, else a note."""
    fact, scheme = _marlin(case)
    if fact is None:
        return
    lack = shortage(case)
    error = overflow(case, "weight_load") or (lack.fact if lack else None)
    if error is None and not case.reading.came_up:
        return
    weights = case.reading.size("weights")
    size = f" All weights take {show_bytes(weights)} a GPU." if weights else ""
    yield RULE.found(
        f"The {scheme} weights run on the Marlin kernel, which computes in 16 bit.",
        f"Marlin repacks and pads the weights while they load, which can take more memory than the checkpoint.{size}",
        evidence=[shown(found) for found in (fact, error) if found is not None],
        advice=("A checkpoint whose format this card and build compute natively",),
        severity=Severity.WARNING if error is not None else Severity.NOTE,
    )


def _marlin(case: Case) -> tuple[Fact | None, str]:
    facts = case.reading.facts
    warned = facts.first("weight_only")
    if warned is not None:
        return warned, warned.values["scheme"]
    for fact in facts.all("moe_backend"):
        if fact.values["kernel"].upper() == "MARLIN" and fact.values["scheme"].lower() in _FORMATS:
            return fact, fact.values["scheme"].upper()
    return None, ""
