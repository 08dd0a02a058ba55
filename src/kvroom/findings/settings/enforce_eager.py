"""KVR104: --enforce-eager in a release that does not count CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag
from kvroom.ledger.overhead import counts_graphs

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR104",
    "eager-frees-no-kv-cache",
    Severity.NOTE,
    "--enforce-eager does not enlarge the KV cache where the CUDA graphs are not part of the budget.",
    explanation(
        what="""
            Reports `--enforce-eager` on releases (and model runners) that size the KV cache without their
            CUDA graphs.
            """,
        why="""
            Eager mode is often advised "to free memory for the KV cache".
            Here the pool has the same number of blocks with and without it; only the memory outside the
            budget is spared, and decoding becomes slower.
            """,
        example="""
            vLLM 0.18.0 with and without `--enforce-eager`: the same "GPU KV cache size".
            """,
        cure="""
            Drop the flag unless graph capture itself runs out of memory; then lower
            `--gpu-memory-utilization` first.
            """,
        since="""
            Up to vLLM 0.19; since 0.20 an estimate of the graphs is subtracted and eager mode gives it back.
            Models on the V2 model runner are concerned up to 0.28.
            """,
        references="""
            `vllm/v1/worker/gpu_worker.py: determine_available_memory`,
            `VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS`
            """,
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where graphs would not be counted if there were any."""
    settings, args = prediction.settings, prediction.setup.args
    if settings is None or not args.enforce_eager:
        return
    if counts_graphs(args, replace(settings, capture_sizes=(1,)), prediction.setup.machine.device):
        return
    yield RULE.found(
        f"vLLM {prediction.setup.release} sizes the KV cache without CUDA graphs here: "
        "eager mode frees nothing for it.",
        evidence=(flag("enforce_eager"),),
        advice=("Drop --enforce-eager for faster decoding.",),
    )
