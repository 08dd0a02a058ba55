"""KVR124: a token budget below the number of sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR124",
    "batched-tokens-below-sequences",
    Severity.ERROR,
    "max_num_batched_tokens has to be at least max_num_seqs.",
    explanation(
        what="Reports a `--max-num-batched-tokens` below `--max-num-seqs`.",
        why="""
            Every running sequence decodes at least one token a step, and a step takes at most
            `max_num_batched_tokens`; vLLM refuses to start.
            """,
        example="`--max-num-seqs 512 --max-num-batched-tokens 256` does not start.",
        cure="Lower `--max-num-seqs` or raise `--max-num-batched-tokens`; 2048 or more serves prompts well.",
        since="All releases.",
        references="`vllm/config/scheduler.py: SchedulerConfig.verify_max_model_len`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where both were written, since an omitted one is fitted to the other."""
    args = prediction.setup.args
    tokens, sequences = args.max_num_batched_tokens, args.max_num_seqs
    if tokens is None or sequences is None or tokens >= sequences:
        return
    yield RULE.found(
        f"max_num_batched_tokens ({tokens:,}) is below max_num_seqs ({sequences:,}).",
        evidence=(flag("max_num_batched_tokens", tokens), flag("max_num_seqs", sequences)),
        advice=(f"--max-num-seqs {tokens}", f"--max-num-batched-tokens {max(sequences, 2048)}"),
    )
