"""KVR161: --quantization names a method that the checkpoint is not stored in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR161",
    "quantization-does-not-match",
    Severity.ERROR,
    "--quantization has to match how the checkpoint is stored, unless it quantises while loading.",
    explanation(
        what="""
            Holds `--quantization` against the method in the checkpoint's config.
            """,
        why="""
            vLLM reads the method from config.json by itself and refuses a flag that says something else.
            A method for stored weights (AWQ, GPTQ, compressed-tensors) does not quantise a plain checkpoint
            either.
            """,
        example="""
            `--quantization awq` on a GPTQ checkpoint; `--quantization fp8` on a compressed-tensors one.
            """,
        cure="""
            Drop the flag: the method is found by itself. To quantise a plain checkpoint while loading, use
            `fp8`.
            """,
        since="All releases.",
        references="`vllm/config/model.py: ModelConfig._verify_quantization`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where both methods are known and no family holds the two."""
    asked, stored = prediction.setup.args.quantization, prediction.setup.shape.quantization
    rules = prediction.rules
    if asked is None or (stored is not None and stored.assumed):
        return
    if stored is None:
        if asked in rules["quantization_from_checkpoint"]:
            yield RULE.found(
                f"The checkpoint's config does not say {asked}, which needs weights stored that way.",
                evidence=(flag("quantization", asked),),
                advice=("Use a quantised checkpoint, or --quantization fp8, which quantises while loading.",),
                severity=Severity.WARNING,
            )
        return
    checked = rules["quantization_checked"]
    if asked == stored.method or asked not in checked or stored.method not in checked:
        return
    if any(asked in family and stored.method in family for family in rules["quantization_families"]):
        return
    yield RULE.found(
        f"--quantization {asked}, but the checkpoint is stored as {stored.method}.",
        evidence=(flag("quantization", asked), Evidence(f"quant_method: {stored.method}")),
        advice=("Drop --quantization.",),
    )
