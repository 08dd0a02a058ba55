"""KVR115: --calculate-kv-scales in the releases that deprecate it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR115",
    "calculated-kv-scales-deprecated",
    Severity.NOTE,
    "--calculate-kv-scales is deprecated and gone in newer releases.",
    explanation(
        what="""
            Reports `--calculate-kv-scales` in the releases that still accept it but warn of its end.
            """,
        why="""
            Scales computed from the first prompts depend on what those prompts happened to be.
            The command stops working with the next upgrade.
            """,
        example="`--kv-cache-dtype fp8 --calculate-kv-scales` on vLLM 0.20; 0.28 does not know the option.",
        cure="""
            Drop the flag: without it scales come from the checkpoint, else they are 1.
            A checkpoint calibrated with llm-compressor brings its own.
            """,
        since="Deprecated in vLLM 0.19, removed in 0.28.0, where it is an unknown flag.",
        references="`vllm/config/cache.py: CacheConfig.calculate_kv_scales`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the option is accepted and deprecated."""
    if not prediction.rules["calculate_kv_scales_deprecated"]:
        return
    for written in prediction.setup.args.passed:
        if written.replace("_", "-").startswith("--calculate-kv-scales"):
            yield RULE.found(
                f"vLLM {prediction.setup.release} warns of --calculate-kv-scales; 0.28.0 does not have it.",
                evidence=(Evidence(written),),
                advice=("Drop --calculate-kv-scales.",),
            )
            return
