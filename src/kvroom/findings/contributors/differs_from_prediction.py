"""KVR291: the log and the rules do not agree on a part of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.held import Difference, held_against
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR291",
    "log-differs-from-prediction",
    Severity.NOTE,
    "A size in the log lies outside of what the rules of that release predict for this launch.",
    explanation(
        what="""
            Holds each entry of the ledger that the log prints against the prediction for the same model,
            card, release and flags, and names those outside of the predicted interval.
            """,
        why="""
            Weights are predicted almost to the byte: another figure means another checkpoint, another
            quantisation kernel, or layers on the CPU.
            A larger activation peak or more memory outside torch points to another program on the card, a
            fork, or a term that the rules do not know.
            Where all parts agree and the KV cache does not, something is counted that the log does not print.
            """,
        example="""
            Logged weights of 100.6 GiB where 73.9 GiB are predicted: the checkpoint's 4-bit weights were
            repacked for a kernel that keeps them larger.
            """,
        cure="""
            Check that the model, the card and the release given are those of the log.
            If they are, the difference itself is what to look into.
            """,
        since="All releases.",
        references="`vllm/v1/worker/gpu_worker.py: determine_available_memory`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """One note on all entries that disagree."""
    if case.prediction is None:
        return
    apart = [each for each in held_against(case.prediction, case.reading) if each.outside]
    if not apart:
        return
    lines = {fact.line: fact for fact in case.reading.facts}
    yield RULE.found(
        f"{', '.join(map(_said, apart))}.",
        evidence=[shown(lines[each.line]) for each in apart if each.line in lines],
        advice=("Check that the model, the card, the release and the flags are those of the log.",),
    )


def _said(each: Difference) -> str:
    return (
        f"{each.entry} is {show_bytes(each.logged)} in the log, predicted "
        f"{show_bytes(each.low)} to {show_bytes(each.high)}"
    )
