"""KVR111: --swap-space on the V1 engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR111",
    "swap-space-does-nothing",
    Severity.WARNING,
    "The V1 engine never swaps blocks to host memory: --swap-space has no effect.",
    explanation(
        what="""
            Reports `--swap-space` where the V1 engine runs.
            """,
        why="""
            The V0 engine could move the blocks of a preempted request to host memory.
            V1 throws them away and computes them again, so a larger swap space neither lets more requests run
            nor lets a longer one start.
            The value is still held against the host's memory up to 0.17, and too large a one stops the
            launch.
            """,
        example="""
            `vllm serve ... --swap-space 16` on vLLM 0.10: the same pool as without it.
            """,
        cure="""
            Drop the flag.
            To keep evicted prefixes in host memory, use `--kv-offloading-size` (0.11.2 and newer).
            """,
        since="vLLM 0.8.0, where V1 became the default; the option is gone since 0.18.0 and refused there.",
        references="`vllm/config/cache.py: CacheConfig.swap_space` (up to 0.17)",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the option is known but unused; without it KVR113 has its say."""
    args, settings = prediction.setup.args, prediction.settings
    if args.swap_space is None or settings is None or settings.engine != "V1":
        return
    if any("swap" in written for written in args.unknown):
        return
    yield RULE.found(
        f"--swap-space {args.swap_space:g} has no effect on the V1 engine (vLLM {prediction.setup.release}).",
        evidence=(flag("swap_space", args.swap_space),),
        advice=("Drop --swap-space.",),
    )
