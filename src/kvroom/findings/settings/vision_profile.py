"""KVR151: profiling the vision encoder is what peaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR151",
    "vision-profile-dominates",
    Severity.NOTE,
    "The activation peak comes from profiling the vision encoder with its largest input.",
    explanation(
        what="""
            Reports a vision-language model whose activation peak is set by the encoder's profile run.
            """,
        why="""
            vLLM reserves memory for the largest image or video that the processor accepts, even when only
            text is served.
            What is reserved is not available to the KV cache.
            """,
        example="A Qwen3-VL model whose encoder pass over 16384 image tokens keeps several GiB.",
        cure="""
            For text only: `--language-model-only` (0.14 and newer) or
            `--limit-mm-per-prompt '{"image": 0, "video": 0}'`.
            For images: cap their size with `--mm-processor-kwargs`, or lower `--max-num-batched-tokens`.
            """,
        since="All releases with the V1 engine.",
        references="`vllm/v1/worker/gpu_model_runner.py: profile_run`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the encoder decides the activation peak."""
    ledger, shape = prediction.ledger, prediction.setup.shape
    if ledger is None or shape.vision is None or ledger.activation.cause != "encoder":
        return
    limits = prediction.setup.args.limit_mm_per_prompt
    evidence = (flag("limit_mm_per_prompt", dict(limits)),) if limits else ()
    off = '\'{"image": 0, "video": 0}\'' if prediction.rules["limit_mm_json"] else "image=0,video=0"
    yield RULE.found(
        f"Profiling the vision encoder takes {show_bytes(ledger.activation.expected)} from the KV cache.",
        evidence=evidence,
        advice=(f"--limit-mm-per-prompt {off} if only text is served",),
    )
