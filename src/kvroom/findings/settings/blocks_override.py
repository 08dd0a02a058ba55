"""KVR105: --num-gpu-blocks-override is taken for memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag, free_bytes
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR105",
    "block-override-is-not-memory",
    Severity.WARNING,
    "--num-gpu-blocks-override sets the number of blocks, and brings no memory for them.",
    explanation(
        what="""
            Reports `--num-gpu-blocks-override` with the bytes that so many blocks take on this GPU and with
            what is available for them.
            """,
        why="""
            More blocks than the memory holds end in an out-of-memory error when the cache is allocated.
            Fewer waste what was profiled.
            Whether the start-up check sees the override depends on the release: up to 0.19 one request of
            `max_model_len` is checked against the profiled memory, so a server can start whose pool is too
            small for a single long request; since 0.20 the overridden pool is checked.
            """,
        example="""
            Llama-3.1-8B at 131072 tokens with `--num-gpu-blocks-override 1000`: 0.19 starts with room for
            16,000 tokens, 0.20 and later refuse and name 16,000 tokens or a block less as the longest
            context.
            """,
        cure="""
            Drop the flag; it is meant for tests of preemption.
            To choose the size of the cache, use `--kv-cache-memory-bytes` (bytes) or
            `--gpu-memory-utilization`.
            """,
        since="All releases; the check counts the overridden pool since vLLM 0.20.0.",
        references="`vllm/v1/core/kv_cache_utils.py: may_override_num_blocks`, `get_kv_cache_configs`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding with the bytes that the override stands for."""
    blocks, ledger, layout = (
        prediction.setup.args.num_gpu_blocks_override,
        prediction.ledger,
        prediction.layout,
    )
    if blocks is None:
        return
    evidence = (flag("num_gpu_blocks_override", blocks),)
    advice = ("Drop --num-gpu-blocks-override.",)
    counted = prediction.rules["kv_override"] == "capacity"
    check = (
        "the start-up check uses the overridden pool"
        if counted
        else "the start-up check ignores it and uses the profiled memory"
    )
    if ledger is None or layout is None:
        yield RULE.found(f"{blocks:,} blocks are set by hand; {check}.", evidence=evidence, advice=advice)
        return
    taken, available = blocks * layout.bytes_per_block, ledger.available.expected
    fate = "more than" if taken > available else "of"
    most = free_bytes(prediction) - ledger.weights.low - ledger.other.low
    yield RULE.found(
        f"{blocks:,} blocks take {show_bytes(taken)}, {fate} the {show_bytes(available)} available; {check}.",
        evidence=evidence,
        advice=advice,
        severity=Severity.ERROR if taken > most else None,
    )
