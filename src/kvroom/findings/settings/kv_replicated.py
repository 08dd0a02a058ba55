"""KVR132: ranks that store the same KV heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR132",
    "kv-cache-replicated",
    Severity.NOTE,
    "More tensor-parallel ranks than KV heads: ranks store copies of the same KV heads.",
    explanation(
        what="""
            Reports a `--tensor-parallel-size` above the number of KV heads, and any above 1 for models with
            multi-head latent attention, whose cache is one vector a token.
            """,
        why="""
            A rank stores at least one KV head.
            Ranks beyond the KV heads store copies, so a token costs the same on each GPU however many there
            are; of the added memory only what the weights free comes to the cache.
            """,
        example="""
            A model with 4 KV heads on 8 GPUs with `--tensor-parallel-size 8` stores every token twice;
            DeepSeek-V3 stores it eight times.
            """,
        cure="""
            `--decode-context-parallel-size` shards the tokens over the ranks that would hold copies.
            With data parallelism (and expert parallelism for the experts) each replica has a cache of its own
            instead.
            """,
        since="All releases; decode context parallelism since vLLM 0.10.2.",
        references="`vllm/config/model.py: ModelConfig.get_num_kv_heads`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding with the number of copies."""
    shape, args = prediction.setup.shape, prediction.setup.args
    tp = args.tensor_parallel_size
    heads = 1 if shape.mla is not None else shape.kv_heads
    if heads < 1 or tp <= heads or shape.heads == 0:
        return
    copies = tp // heads // args.decode_context_parallel_size
    if copies < 2:
        return
    what = "The latent KV cache" if shape.mla is not None else f"{heads} KV heads"
    evidence = flag("tensor_parallel_size", tp)
    size = tp // heads
    yield RULE.found(
        f"{what} on {tp} tensor-parallel ranks: every token is stored {copies} times.",
        evidence=(evidence,),
        advice=(f"--decode-context-parallel-size {size} where the backend supports it",),
    )
