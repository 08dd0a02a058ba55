"""KVR133: expert parallelism for a model without experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR133",
    "expert-parallel-without-experts",
    Severity.ERROR,
    "--enable-expert-parallel needs a mixture-of-experts model.",
    explanation(
        what="Reports `--enable-expert-parallel` for a model without routed experts.",
        why="There is nothing to deal out; vLLM stops while it checks the configuration.",
        example="`vllm serve Qwen/Qwen3-8B --enable-expert-parallel` does not start; Qwen3-30B-A3B does.",
        cure="Drop the flag.",
        since="vLLM 0.8.0.",
        references="`vllm/config/model.py: ModelConfig._verify_with_expert_parallelism`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding for a dense model whose architecture is known."""
    shape, args = prediction.setup.shape, prediction.setup.args
    if not args.enable_expert_parallel or shape.is_moe or shape.assumptions:
        return
    yield RULE.found(
        f"{shape.name} ({shape.architecture}) has no routed experts.",
        evidence=(flag("enable_expert_parallel"),),
        advice=("Drop --enable-expert-parallel.",),
    )
