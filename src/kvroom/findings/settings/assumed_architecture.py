"""KVR171: a model whose architecture had to be guessed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR171",
    "architecture-assumed",
    Severity.WARNING,
    "The model's architecture is not known here; its layers are assumed from the fields of its config.",
    explanation(
        what="Reports what was assumed to price an architecture that kvroom has no description of.",
        why="""
            Attention fields of a config are common to most families, so the KV cache is often right; weights
            and activations of unusual layers are not.
            The intervals are wider, and the prediction is only as good as the assumptions.
            """,
        example="""
            A `model_type` of last week whose layers are taken for standard attention with a gated
            feed-forward.
            """,
        cure="""
            Compare with the log of one real start (`--measured` entries replace the guesses), and report the
            model.
            """,
        since="All releases.",
        references="`vllm/model_executor/models/registry.py`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding with every assumption as evidence."""
    shape = prediction.setup.shape
    if not shape.assumptions:
        return
    yield RULE.found(
        f"Assumed of {shape.architecture}: {shape.assumptions[0]}",
        evidence=tuple(Evidence(text) for text in shape.assumptions),
        advice=("Hold the prediction against the log of a real start.",),
    )
