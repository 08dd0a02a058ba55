"""KVR122: a length in thousands where 1024s were meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR122",
    "k-means-thousand",
    Severity.NOTE,
    "In vLLM's sizes a small k is 1000 and a capital K 1024.",
    explanation(
        what="""
            Reports a `--max-model-len` of a power of two times 1000 where the model allows the same power
            times 1024, and one of 1024s that is above the model's limit while the thousands are not.
            """,
        why="""
            `32k` is read as 32,000 and `32K` as 32,768.
            With the first, prompts between the two are refused although the model takes them.
            """,
        example="`--max-model-len 32k` on a model with 32,768 positions serves 32,000 tokens.",
        cure="Write `32K` or `32768`; keep the number if thousands were meant.",
        since="vLLM 0.8.5.",
        references="`vllm/utils/argparse_utils.py: human_readable_int`",
    ),
)
_POWERS = tuple(1 << n for n in range(2, 11))


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the length looks like the wrong kind of k."""
    asked = prediction.setup.args.max_model_len
    limit = min((tokens for _, tokens in prediction.setup.shape.position_limits), default=0)
    settings = prediction.settings
    if settings is not None:
        limit = settings.derived_max_model_len
    for power in _POWERS:
        small, large = power * 1000, power * 1024
        if asked == small and limit >= large:
            title = f"max_model_len is {small:,}; {power}K would be {large:,}, which the model allows."
            meant = large
        elif asked == large and small <= limit < large:
            title = f"{power}K is {large:,}, above the model's {limit:,}; {power}k is {small:,}."
            meant = small
        else:
            continue
        yield RULE.found(title, evidence=(flag("max_model_len", asked),), advice=(f"--max-model-len {meant}",))
