"""KVR224: speculative decoding takes weights, cache and rows of the batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument, overflow, shortage
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.values import whole_number

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR224",
    "speculative-decoding",
    Severity.WARNING,
    "Speculative decoding takes memory in three places: the draft's weights, its KV cache and the batch.",
    explanation(
        what="Reports a launch with speculative decoding that ran short of memory.",
        why="""
            A draft model or the checkpoint's own prediction layers add weights and layers with a KV cache of
            their own. Each sequence brings its draft tokens to the verification, so batches, CUDA graphs and
            logits grow by a factor of 1 + n. Hybrid models keep n more recurrent states a sequence.
            N-gram drafting needs no weights, only the wider batch.
            """,
        example="""
            A 27B model with a DFlash draft of 15 tokens lacks 1.1 GiB for 256,000 tokens of context on a
            24 GB card; with 7 draft tokens it starts.
            """,
        cure="""
            Fewer `num_speculative_tokens`, or none: start without it and compare the KV cache.
            `max_num_seqs` times (1 + n) is the width of the decode batch.
            """,
        since="All releases; `--speculative-config` since 0.8, single flags before.",
        references="`vllm/config/speculative.py`, `vllm/v1/spec_decode`",
    ),
)
_DUMP = re.compile(r"(method|model|num_spec_tokens|num_speculative_tokens)='?([^',)]+)")


def find(case: Case) -> Iterator[Finding]:
    """The finding where memory ran short and a draft is configured."""
    config = _config(case)
    lack = shortage(case)
    fact = lack.fact if lack else overflow(case) or case.reading.facts.first("err_state_blocks")
    if not config or fact is None:
        return
    method, tokens = str(config.get("method") or "draft model"), whole_number(config.get("num_speculative_tokens"))
    drafts = f", {tokens} tokens a step" if tokens else ""
    weightless = "ngram" in method
    parts = "rows of the batch" if weightless else "weights, a KV cache of its own and rows of the batch"
    wider = f" Every sequence brings up to {tokens + 1} rows to a verification." if tokens else ""
    advice = [f"num_speculative_tokens {max(tokens // 2, 1)} in --speculative-config"] if tokens and tokens > 1 else []
    yield RULE.found(
        f"Speculative decoding ({method}{drafts}) takes {parts}.",
        f"They come off what is left for the KV cache.{wider}",
        evidence=(shown(fact),),
        advice=(*advice, "Start without --speculative-config and compare the KV cache."),
        severity=Severity.NOTE if weightless else Severity.WARNING,
    )


def _config(case: Case) -> dict[str, Any]:
    """Method, model and tokens of the draft; empty without one."""
    value = argument(case, "speculative_config")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str) and value not in {"null", "None"}:
        found = dict(_DUMP.findall(value.replace('"', "'").replace("': ", "'=").replace("'=", "=")))
        if "num_spec_tokens" in found:
            found["num_speculative_tokens"] = found.pop("num_spec_tokens")
        return found
    model = argument(case, "speculative_model")
    return {"model": model, "num_speculative_tokens": argument(case, "num_speculative_tokens")} if model else {}
