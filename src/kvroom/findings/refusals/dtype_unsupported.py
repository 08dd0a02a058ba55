"""KVR244: a dtype that the card, or the model, cannot take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR244",
    "dtype-unsupported",
    Severity.ERROR,
    "The card has no bfloat16, or the model does not run in float16.",
    explanation(
        what="""
            Reads the refusal of bfloat16 on cards below compute capability 8.0, and that of float16 for models
            which overflow in it.
            """,
        why="""
            Volta and Turing cards (V100, T4, RTX 20) have no bfloat16.
            float16 has the same size but a narrower range (up to 65,504), so that activations of some models
            that were trained in bfloat16 overflow; vLLM refuses float16 for those it knows, such as Gemma 2
            and 3.
            """,
        example="`--dtype bfloat16` on a Tesla T4 (7.5).",
        cure="""
            `--dtype half` on the old card, and a look at the answers.
            A model that refuses float16 needs `--dtype bfloat16` on Ampere or newer, or float32 with twice the
            memory.
            """,
        since="All releases; the refusal of float16 by model since about vLLM 0.9.",
        references="""
            `vllm/platforms/cuda.py: check_if_supports_dtype`, `vllm/config/model.py: _check_valid_dtype`
            """,
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the card or the model."""
    fact = cause(case, "err_bf16", "err_float16")
    if fact is None:
        return
    if fact.id == "err_float16":
        kind = fact.values["model_type"]
        yield RULE.found(
            f"Models of type {kind} do not run in float16.",
            "Their activations leave the range of float16 (65,504), so vLLM refuses instead of answering nonsense.",
            evidence=(shown(fact),),
            advice=(
                "--dtype bfloat16 (needs compute capability 8.0: Ampere or newer)",
                "--dtype float32 (on an older card, with twice the memory for weights and KV cache)",
            ),
        )
        return
    gpu, have, least = (fact.values.get(name) for name in ("gpu", "capability", "least"))
    card = f"{gpu} (compute capability {have})" if gpu and have else "The card"
    yield RULE.found(
        f"{card} has no bfloat16, which needs {least or '8.0'}.",
        "bfloat16 came with Ampere; float16 takes the same memory.",
        evidence=(shown(fact),),
        advice=(
            "--dtype half",
            "Compare answers: a model trained in bfloat16 can overflow in float16, and Gemma 2 and 3 refuse it.",
        ),
    )
