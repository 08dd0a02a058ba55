"""KVR106: --cpu-offload-gb moves weights, not KV blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR106",
    "cpu-offload-moves-weights",
    Severity.NOTE,
    "--cpu-offload-gb keeps part of the weights in host memory; a request needs as much KV cache as before.",
    explanation(
        what="""
            Reports `--cpu-offload-gb` with what it takes off the card.
            """,
        why="""
            The flag is read as "put the KV cache into host memory", which it does not do.
            It keeps up to that many GiB of weights per GPU in host memory and reads them over the bus at
            every step, so each token costs a transfer of that size.
            What it frees goes to the KV cache indirectly.
            """,
        example="""
            `--cpu-offload-gb 4` on PCIe 4.0 x16: every decoding step moves 4 GiB, about 0.2 s.
            """,
        cure="""
            Prefer a quantised checkpoint, a shorter `--max-model-len` or an 8-bit KV cache; keep offloading
            for models that cannot be held otherwise.
            """,
        since="vLLM 0.5.1; an option group of its own since 0.18.0.",
        references="`vllm/config/offload.py`, earlier `vllm/config/cache.py: CacheConfig.cpu_offload_gb`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where weights are offloaded."""
    size = prediction.setup.args.cpu_offload_gb
    if not size:
        return
    pool = prediction.pool
    need = (
        f"one request still needs {show_bytes(pool.needed_bytes)} of KV cache"
        if pool
        else "the KV cache stays on the card"
    )
    yield RULE.found(
        f"Up to {size:g} GiB of weights a GPU move to host memory; {need}.",
        evidence=(flag("cpu_offload_gb", size),),
        advice=("Expect every decoding step to read those weights over the bus.",),
    )
