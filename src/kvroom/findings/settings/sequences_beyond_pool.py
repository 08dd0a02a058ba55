"""KVR126: more sequences than the pool can hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR126",
    "more-sequences-than-the-pool-holds",
    Severity.NOTE,
    "max_num_seqs is far above the number of full-length requests that the KV cache holds.",
    explanation(
        what="""
            Compares a `--max-num-seqs` that was written with the requests of `max_model_len` that the pool
            holds at once; reports one more than four times as large.
            """,
        why="""
            `max_num_seqs` admits requests, it does not reserve blocks for them.
            When those that run outgrow the pool, the youngest are preempted and computed again later, which
            costs more than waiting would have.
            It also costs memory: the profile run samples for that many sequences.
            """,
        example="""
            `--max-num-seqs 256` with a pool for 3.4 requests of 131072 tokens: fine for 256 short chats, a
            storm of preemptions for 10 long ones.
            """,
        cure="""
            Size it by the tokens a request really uses: pool tokens / mean tokens of a request.
            Where every request is long, lower it to the concurrency that vLLM logs.
            """,
        since="All releases.",
        references='`vllm/v1/core/sched/scheduler.py`, the log line "Maximum concurrency"',
    ),
)
_FAR = 4


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding for a number that was asked for, not for a default."""
    sequences, pool = prediction.setup.args.max_num_seqs, prediction.pool
    if sequences is None or pool is None or not pool.fits or pool.max_concurrency <= 0:
        return
    if sequences <= _FAR * max(pool.max_concurrency, 1.0):
        return
    mean = pool.tokens // sequences
    yield RULE.found(
        f"max_num_seqs is {sequences:,}; the pool holds {pool.max_concurrency:.2f} requests of "
        f"{pool.max_model_len:,} tokens, or {sequences:,} of {mean:,}.",
        evidence=(flag("max_num_seqs", sequences),),
        advice=(
            f"Keep it if a request uses {mean:,} tokens or less on average.",
            f"--max-num-seqs {max(1, int(pool.max_concurrency))}",
        ),
    )
