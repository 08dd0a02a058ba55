"""KVR127: the pool holds one full-length request, but not two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR127",
    "one-full-request-at-a-time",
    Severity.NOTE,
    "The server starts, but two requests of max_model_len do not fit at once.",
    explanation(
        what="Reports a launch that fits with a pool for less than two requests of `max_model_len`.",
        why="""
            vLLM only checks that one request fits.
            With concurrency below 2 a second long request waits, or is preempted half-way and computed again.
            Below 1, which some releases let pass on models with windows or states, even one request of full
            length is never served.
            """,
        example='"Maximum concurrency for 32,768 tokens per request: 1.12x".',
        cure="""
            Nothing if requests are shorter than `max_model_len`.
            Otherwise enlarge the pool: an 8-bit KV cache, a smaller `--max-num-seqs`, another card.
            Lowering `--max-model-len` does not make requests smaller, it only refuses longer ones.
            """,
        since="All releases.",
        references="`vllm/v1/core/kv_cache_utils.py: get_max_concurrency_for_kv_cache_config`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the pool's concurrency lies below 2."""
    pool, settings = prediction.pool, prediction.settings
    if pool is None or settings is None or not pool.fits or settings.is_pooling:
        return
    if not 0 < pool.max_concurrency < min(2, settings.max_num_seqs):
        return
    yield RULE.found(
        f"The pool of {pool.tokens:,} tokens holds {pool.max_concurrency:.2f} requests of "
        f"{pool.max_model_len:,} tokens.",
        evidence=(flag("max_model_len", pool.max_model_len),),
        advice=("Expect long requests to wait for each other.",),
        severity=Severity.WARNING if pool.max_concurrency < 1 else None,
    )
