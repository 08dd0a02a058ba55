"""KVR165: bfloat16 on a card without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR165",
    "bfloat16-unsupported-on-gpu",
    Severity.ERROR,
    "bfloat16 needs compute capability 8.0.",
    explanation(
        what="Reports `--dtype bfloat16` on NVIDIA cards older than Ampere.",
        why="vLLM stops when the worker starts; without the flag it would have taken float16 by itself.",
        example="`--dtype bfloat16` on a Tesla T4 (7.5).",
        cure="Drop the flag or write `--dtype half`. Some models overflow in float16: compare answers.",
        since="All releases.",
        references="`vllm/platforms/cuda.py: check_if_supports_dtype`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the dtype was written and the card is older than Ampere."""
    args, device = prediction.setup.args, prediction.setup.machine.device
    capability = device.compute_capability
    if args.dtype != "bfloat16" or device.vendor != "NVIDIA" or capability is None or capability >= (8, 0):
        return
    yield RULE.found(
        f"{device.name} has compute capability {capability[0]}.{capability[1]}; bfloat16 needs 8.0.",
        evidence=(flag("dtype", "bfloat16"),),
        advice=("--dtype half",),
    )
