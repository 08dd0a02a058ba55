"""KVR235: a model with latent attention whose cache is kept uncompressed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import model_names, overflow, shortage
from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR235",
    "mla-uncompressed",
    Severity.WARNING,
    "This DeepSeek model could keep one small latent vector a token, and keeps full keys and values.",
    explanation(
        what="Reports DeepSeek-V2, V3, R1 and their kin without latent attention in the cache.",
        why="""
            Multi-head latent attention needs 576 numbers a token and layer. Before vLLM supported it, and
            with `VLLM_MLA_DISABLE=1`, keys and values of all heads are stored, each padded to 256 numbers:
            with 128 heads 65,536 numbers a token and layer over all GPUs.
            """,
        example="""
            DeepSeek-Coder-V2 (236B) on eight GPUs with 0.5.4: 2,368 tokens fit, where the latent cache would
            hold more than ten times as many.
            """,
        cure="vLLM 0.7.1 or later (quantised checkpoints a little later), without `VLLM_MLA_DISABLE`.",
        since="Latent attention exists since 0.7.1.",
        references="`vllm/model_executor/models/deepseek_v2.py`, `vllm/config: use_mla`",
    ),
)
_MLA = re.compile(r"deepseek[-_]?(coder[-_]?)?v(2|3)|deepseek[-_]r1(?![\w.-]*distill)|deepseekv[23]for")


def find(case: Case) -> Iterator[Finding]:
    """The finding for such a model on an old release, or with the latent cache switched off."""
    names = model_names(case)
    if not _MLA.search(names) or "distill" in names or "MLA" in (case.reading.attention_backend or ""):
        return
    off = case.variable("VLLM_MLA_DISABLE") in {"1", "true", "True"}
    if not off and case.since("0.7.1") is not False:
        return
    lack = shortage(case)
    error = lack.fact if lack else overflow(case)
    reached = case.reading.facts.last("blocks_v0", "blocks_v1", "tokens")
    fact = error or reached
    if fact is None:
        return
    why = "VLLM_MLA_DISABLE is set" if off else f"vLLM {case.release} has no latent attention (since 0.7.1)"
    yield RULE.found(
        f"{why}, so the KV cache holds full keys and values of every head.",
        "The latent cache needs 576 numbers a token and layer on each GPU; full keys and values of 128 heads are "
        "65,536 over all GPUs.",
        evidence=(shown(fact), *((Evidence("VLLM_MLA_DISABLE=1"),) if off else ())),
        advice=("Start without VLLM_MLA_DISABLE." if off else "vLLM 0.7.1 or later",),
    )
