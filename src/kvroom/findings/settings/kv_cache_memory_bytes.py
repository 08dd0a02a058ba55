"""KVR101: --kv-cache-memory-bytes and --gpu-memory-utilization given together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR101",
    "kv-cache-bytes-replace-utilization",
    Severity.WARNING,
    "--kv-cache-memory-bytes sizes the KV cache alone; the utilisation beside it only decides a check.",
    explanation(
        what="""
            Reports a launch that gives both `--kv-cache-memory-bytes` and `--gpu-memory-utilization`.
            """,
        why="""
            The first is taken as the size of the KV cache, whatever the profile run measures.
            The second then moves no memory into the cache or out of it.
            It still has a say at the start: the share of the card that it asks for has to be free, or vLLM
            stops with "Free memory on device ... is less than desired GPU memory utilization" although it
            never takes it.
            Nothing checks that weights, activations and the fixed cache fit together, so a number that is too
            large ends in an out-of-memory error while the cache is allocated.
            """,
        example="""
            `--kv-cache-memory-bytes 8G --gpu-memory-utilization 0.95`: the cache has 8 GiB, and 95 % of the
            card must be free before the weights load.
            """,
        cure="""
            Keep one of the two.
            On a card that other programs share, keep `--kv-cache-memory-bytes` and lower the utilisation to
            what is free, so that the check passes.
            """,
        since="vLLM 0.10.2, which brought `--kv-cache-memory-bytes`.",
        references="""
            `vllm/v1/worker/gpu_worker.py: determine_available_memory`, `vllm/v1/worker/utils.py:
            request_memory`
            """,
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where both are given."""
    args = prediction.setup.args
    fixed, share = args.kv_cache_memory_bytes, args.gpu_memory_utilization
    if fixed is None or share is None:
        return
    asked = int(prediction.setup.machine.device.total_bytes * share)
    check = ""
    if prediction.rules["startup_free_memory_check"]:
        check = f"; it still requires {show_bytes(asked)} to be free at the start"
    yield RULE.found(
        f"The KV cache gets {show_bytes(fixed)} whatever --gpu-memory-utilization {share:g} says{check}.",
        evidence=(flag("kv_cache_memory_bytes", fixed), flag("gpu_memory_utilization", share)),
        advice=("Drop --gpu-memory-utilization, or drop --kv-cache-memory-bytes.",),
    )
