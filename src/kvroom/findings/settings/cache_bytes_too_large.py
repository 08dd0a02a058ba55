"""KVR108: --kv-cache-memory-bytes beyond what the card can hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag, free_bytes
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR108",
    "kv-cache-bytes-beyond-the-card",
    Severity.WARNING,
    "Weights, activations and a KV cache of fixed size do not fit on the card together.",
    explanation(
        what="""
            Adds `--kv-cache-memory-bytes` to the weights, the activation peak and the other parts of the
            ledger, and compares the sum with the free memory.
            """,
        why="""
            vLLM does not check a cache of fixed size against the card: it prints the pool and runs out of
            memory while it allocates it, or later under load.
            """,
        example="`--kv-cache-memory-bytes 12G` for an 8B model in bfloat16 on a 24 GB card: 15 + 12 GiB.",
        cure="Lower it to what the finding says is left, or drop it and let the profile size the cache.",
        since="vLLM 0.10.2, which brought the option.",
        references="`vllm/v1/worker/gpu_worker.py: determine_available_memory`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the sum is above what is free; an error where it is even at the low ends."""
    fixed, ledger = prediction.setup.args.kv_cache_memory_bytes, prediction.ledger
    if fixed is None or ledger is None:
        return
    parts = (ledger.weights, ledger.activation, ledger.other)
    room = free_bytes(prediction) - sum(part.expected for part in parts)
    if fixed <= room:
        return
    most = free_bytes(prediction) - sum(part.low for part in parts)
    yield RULE.found(
        f"{show_bytes(fixed)} are asked for; weights and activations leave {show_bytes(max(room, 0))}.",
        evidence=(flag("kv_cache_memory_bytes", fixed),),
        advice=(f"--kv-cache-memory-bytes {room}",) if room > 0 else ("Drop --kv-cache-memory-bytes.",),
        severity=Severity.ERROR if fixed > most else None,
    )
