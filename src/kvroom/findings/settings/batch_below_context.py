"""KVR123: a token budget below the context with chunked prefill off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR123",
    "batched-tokens-below-context",
    Severity.ERROR,
    "Without chunked prefill max_num_batched_tokens has to hold a whole prompt of max_model_len.",
    explanation(
        what="""
            Reports `--no-enable-chunked-prefill` with a `--max-num-batched-tokens` below `max_model_len`.
            """,
        why="""
            Without chunks a prompt is computed in one step, and a step takes at most
            `max_num_batched_tokens`.
            vLLM refuses the combination rather than refuse long prompts later.
            """,
        example="""
            `--max-model-len 32768 --no-enable-chunked-prefill --max-num-batched-tokens 8192` does not start.
            """,
        cure="""
            Leave chunked prefill on (the default), which also keeps the activation peak small; or raise
            `--max-num-batched-tokens` to `max_model_len`, or lower the latter.
            """,
        since="All releases. Chunked prefill is on by default for generative models since vLLM 0.8.0 (V1).",
        references="`vllm/config/scheduler.py: SchedulerConfig.verify_max_model_len`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding from what was written, since vLLM stops before it resolves anything."""
    args, settings = prediction.setup.args, prediction.settings
    budget = args.max_num_batched_tokens
    chunked = settings.enable_chunked_prefill if settings is not None else args.enable_chunked_prefill
    if budget is None or chunked is not False:
        return
    length = settings.max_model_len if settings is not None else args.max_model_len
    if length is None:
        length = min((tokens for _, tokens in prediction.setup.shape.position_limits), default=0)
    if budget >= length:
        return
    yield RULE.found(
        f"max_num_batched_tokens is {budget:,} and max_model_len {length:,}, with chunked prefill off.",
        evidence=(flag("max_num_batched_tokens", budget), flag("no_enable_chunked_prefill"))
        if args.enable_chunked_prefill is False
        else (flag("max_num_batched_tokens", budget),),
        advice=("--enable-chunked-prefill", f"--max-num-batched-tokens {length}"),
    )
