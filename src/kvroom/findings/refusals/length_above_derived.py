"""KVR241: a context length above what the model's config allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause
from kvroom.vllm.rules import rules_for

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR241",
    "length-above-derived",
    Severity.ERROR,
    "The context length that was asked for is above what the model's config allows.",
    explanation(
        what="""
            Reads the refusal that names the `max_model_len` asked for and the one derived from config.json,
            with the key it comes from.
            """,
        why="""
            vLLM takes the longest context from the model's config (`max_position_embeddings` as a rule,
            extended by rope scaling) and refuses more, because positions that the model was not made for give
            wrong numbers or reads outside a table.
            It has nothing to do with memory.
            """,
        example="`--max-model-len 65536` for a model with `max_position_embeddings` 32768.",
        cure="""
            `--max-model-len` at or below the derived length.
            A model whose card describes YaRN takes more with its rope block in `--hf-overrides`.
            `VLLM_ALLOW_LONG_MAX_MODEL_LEN=1` turns the refusal into a warning and is right only where the
            config understates the model.
            """,
        since="All releases; `VLLM_ALLOW_LONG_MAX_MODEL_LEN` since vLLM 0.5.4.",
        references="`vllm/config/model.py: _get_and_verify_max_len`",
    ),
)
_MOST_YARN = 8


def find(case: Case) -> Iterator[Finding]:
    """The finding with both lengths."""
    fact = cause(case, "err_length")
    if fact is None:
        return
    asked, limit, key = fact.whole("max_model_len"), fact.whole("derived"), fact.values["key"]
    if not asked or not limit:
        return
    advice = [f"--max-model-len {limit}"]
    if "sliding" in key:
        advice.append("Drop --disable-sliding-window: with it the window is the longest context.")
    elif asked <= _MOST_YARN * limit:
        advice.append(_yarn(case, asked, limit))
    if case.since("0.5.4") is not False:
        advice.append(
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 (only if the config understates the model: beyond its range rotary "
            "positions give NaN or nonsense, absolute ones read outside their table)"
        )
    yield RULE.found(
        f"max_model_len {asked:,} is above the {limit:,} tokens that the model's config allows.",
        f"vLLM derives the longest context from {key} = {limit:,}; {asked:,} is {asked / limit:.3g} times that.",
        evidence=(shown(fact),),
        advice=advice,
    )


def _yarn(case: Case, asked: int, limit: int) -> str:
    factor = math.ceil(asked / limit * 2) / 2
    where = "--hf-overrides"
    if case.since("0.11.1") is False:
        where = "--rope-scaling" if case.since("0.6.4") is False else "--rope-scaling or --hf-overrides"
    also = ""
    if case.release is not None and not rules_for(case.release)["yarn_extends_context"]:
        also = f', and "max_position_embeddings": {asked}'
    return f"If the model card describes YaRN: its rope block in {where} with factor {factor:g}{also}."
