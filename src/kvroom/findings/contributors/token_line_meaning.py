"""KVR232: the tokens that are printed are not tokens of one request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.values import whole_number

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR232",
    "token-line-meaning",
    Severity.NOTE,
    "With several kinds of layers the printed KV cache size in tokens is a converted figure.",
    explanation(
        what="""
            Compares "GPU KV cache size" with "Maximum concurrency" times the context length, and looks for
            layers with windows or recurrent state.
            """,
        why="""
            Layers of one kind share blocks of their own: full attention keeps all tokens, windows a part,
            states none. Up to 0.19 the tokens line counts the blocks of one group; since 0.20 it is the
            concurrency times `max_model_len`, so the same memory reads as other numbers of tokens at other
            lengths. What a request costs without any token (states, windows) is in it.
            """,
        example="""
            40 GiB for Gemma-3-27B at 131,072 tokens: 74,896 tokens in 0.19, 368,540 in 0.20, and 2.81
            requests of full length in both.
            """,
        cure="Read the concurrency: how many requests of full length fit. Compare logs by GiB.",
        since="V1 with its hybrid KV cache manager, 0.9 and later.",
        references="`vllm/v1/core/kv_cache_utils.py: get_kv_cache_capacity, _report_kv_cache_config`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding where both figures are printed and do not say the same, or cannot since the layers differ."""
    facts = case.reading.facts
    told = facts.first("told_share", "told_pool")
    if told is not None and facts.first("tokens") is None and _mixed_layers(case):
        yield RULE.found(
            "The tokens of this pool depend on --max-model-len, and each request takes a fixed part of it.",
            "Layers of several kinds share the pool: the line counts requests of full length times that length, and a "
            "short request still takes a block of each kind.",
            evidence=_once(told, facts.last("hybrid_block")),
        )
        return
    size, running = facts.last("tokens"), facts.last("concurrency")
    if size is None or running is None or case.reading.engine == "V0" or _context_parallel(case):
        return
    if len({fact.values["tokens"] for fact in facts.all("tokens")}) > 1:
        return
    tokens, times, length = size.whole("tokens"), running.number("concurrency"), running.whole("max_model_len")
    if not tokens or not times or not length:
        return
    holds = times * length
    mixed = facts.last("hybrid_block", "hybrid_pad", "padding_layers")
    if abs(tokens - holds) > max(0.02 * holds, 0.006 * length, 64) + length * 0.01:
        title = (
            f"The pool holds {times:g} requests of {length:,} tokens, {holds:,.0f} in all; "
            f"the {tokens:,} tokens printed count another way."
        )
        why = "Layers of several kinds share the pool, and the line counts the blocks of one kind."
    elif mixed is not None and case.since("0.20.0"):
        title = (
            f"{tokens:,} tokens is {times:g} requests times {length:,}: at another --max-model-len it reads otherwise."
        )
        why = "Layers of several kinds share the pool; part of what a request takes does not depend on its length."
    else:
        return
    yield RULE.found(title, why, evidence=_once(size, running, mixed))


def _mixed_layers(case: Case) -> bool:
    """Whether the model's layers are of several kinds, by the log or by the rules."""
    caches = case.prediction.setup.shape.caches if case.prediction is not None else ()
    several = len({layer.cache for layer in caches}) > 1
    return several or case.reading.facts.first("hybrid_block", "hybrid_pad", "padding_layers") is not None


def _context_parallel(case: Case) -> bool:
    sizes = (argument(case, f"{kind}_context_parallel_size") for kind in ("decode", "prefill"))
    return case.reading.facts.first("context_parallel") is not None or any(
        (whole_number(size) or 1) > 1 for size in sizes
    )


def _once(*facts: Fact | None) -> list:  # type: ignore[type-arg]
    return list(dict.fromkeys(shown(fact) for fact in facts if fact is not None))
