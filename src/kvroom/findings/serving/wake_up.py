"""KVR310: memory does not suffice when the engine wakes up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.serving.common import wakes
from kvroom.findings.startup.common import pinned_bytes
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR310",
    "out-of-memory-at-wake-up",
    Severity.ERROR,
    "A sleeping engine could not map its weights or its KV cache again.",
    explanation(
        what="""
            Recognises an allocation that fails in sleep mode's allocator, or below `wake_up`.
            """,
        why="""
            Asleep, the engine gives its GPU memory back and keeps the addresses.
            To wake up it needs all of it again at once, while a trainer or another engine may still hold a part.
            The pool was sized on a card that was nearly empty, and newer releases may size it larger at the same
            utilisation.
            """,
        example="""
            `CUDA Error: out of memory at csrc/cumem_allocator.cpp` in a training loop that had worked with an
            older release: its pool was several GiB smaller.
            """,
        cure="""
            Fix the pool with `--kv-cache-memory-bytes` at what is free when the engine wakes up.
            Let the other program free its memory first, and wake in two steps: weights, then the KV cache.
            """,
        since="Sleep mode exists since 0.7.0, `--kv-cache-memory-bytes` since 0.10.2.",
        references="`vllm/device_allocator/cumem.py: wake_up`, `csrc/cumem_allocator.cpp`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the size of the pool, where the log has it."""
    lines = wakes(case)
    if not lines:
        return
    pool = pinned_bytes(case) or case.reading.size("available")
    size = f" The KV cache is {show_bytes(pool)}." if pool else ""
    advice = []
    if case.since("0.10.2") is not False:
        smaller = int(pool * 0.8) // GIB * GIB if pool and pool > 5 * GIB else 0
        known = f"--kv-cache-memory-bytes {smaller}"
        advice.append(known if smaller else "A --kv-cache-memory-bytes below what the pool has now.")
    else:
        advice.append("A lower --gpu-memory-utilization, for a smaller pool.")
    advice.append("Let the other program free its memory before the engine wakes up.")
    advice.append('wake_up(tags=["weights"]) first, wake_up(tags=["kv_cache"]) after the weights are synchronised.')
    yield RULE.found(
        "Out of GPU memory when sleep mode mapped the engine's memory again.",
        f"Waking up needs weights and KV cache at once, and something else holds a part of the card.{size}",
        evidence=[shown(fact) for fact in {fact.line: fact for fact in lines}.values()],
        advice=advice,
    )
