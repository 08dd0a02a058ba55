"""KVR125: a token budget that costs memory and cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR125",
    "batched-tokens-more-than-needed",
    Severity.NOTE,
    "A large max_num_batched_tokens raises the activation peak, which comes out of the KV cache.",
    explanation(
        what="""
            Reports a `--max-num-batched-tokens` that exceeds `max_num_seqs` x `max_model_len`, so that no
            step can fill it; and one above 8192 where the forward pass over so many tokens is what decides
            the activation peak.
            """,
        why="""
            The profile run computes one batch of that many tokens, and its peak is subtracted from the KV
            cache.
            Prompts longer than the budget are split over steps, so it need not hold the longest one.
            """,
        example="""
            `--max-num-batched-tokens 131072` "for long prompts" on an 8B model keeps several GiB for
            activations.
            """,
        cure="2048 to 8192 is enough for most loads; more helps throughput of prompts on large GPUs only.",
        since="All releases with chunked prefill on.",
        references="""
            `vllm/config/scheduler.py: SchedulerConfig`, `vllm/v1/worker/gpu_model_runner.py: profile_run`
            """,
    ),
)
_USEFUL = 8192


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the budget was written and is larger than it can serve."""
    tokens, settings = prediction.setup.args.max_num_batched_tokens, prediction.settings
    if tokens is None or settings is None or not settings.enable_chunked_prefill:
        return
    most = settings.max_num_seqs * settings.max_model_len
    ledger = prediction.ledger
    if tokens > most:
        title = (
            f"max_num_batched_tokens ({tokens:,}) exceeds max_num_seqs x max_model_len ({most:,}): no step can fill it."
        )
        better = most
    elif tokens > _USEFUL and ledger is not None and ledger.activation.cause == "forward":
        title = (
            f"{tokens:,} batched tokens set the activation peak of {show_bytes(ledger.activation.expected)}, "
            "which the KV cache loses."
        )
        better = _USEFUL
    else:
        return
    yield RULE.found(
        title,
        evidence=(flag("max_num_batched_tokens", tokens),),
        advice=(f"--max-num-batched-tokens {max(better, settings.max_num_seqs)}",),
    )
