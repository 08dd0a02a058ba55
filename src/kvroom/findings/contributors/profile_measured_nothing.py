"""KVR234: the measurement found no weights, so it looked at another device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import on_gpu
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR234",
    "profile-measured-nothing",
    Severity.ERROR,
    "Weights and activations were measured as nothing, and the whole budget was promised to the KV cache.",
    explanation(
        what="Reports a profile whose weights and activations are both 0.00 GiB on a GPU.",
        why="""
            The numbers come from the current device of the process. Where the model lives on another GPU than
            the one that is measured, as inside a trainer that spreads over several, nothing is found, and the
            cache is sized as if the card were empty. The allocation fails, or crowds out what is there.
            """,
        example="""
            A GRPO trainer puts vLLM on the last of eight GPUs; the log says weights 0.00, activations 0.00 and
            71.19 GiB for the cache, and an out-of-memory error follows.
            """,
        cure="""
            Make the GPU visible as the only one of the process (`CUDA_VISIBLE_DEVICES`) or set it before vLLM
            starts (`torch.cuda.set_device`); run vLLM as a server of its own beside the trainer. A lower
            utilisation is a stopgap.
            """,
        since="Seen with 0.6 and 0.7; the measurement follows the current device in all releases.",
        references="`vllm/worker/worker.py: determine_num_available_blocks`, `vllm/utils: memory_profiling`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding where nothing was measured and (nearly) the whole budget is left."""
    reading = case.reading
    total = case.total_bytes
    if reading.size("weights") != 0 or reading.size("activation") != 0 or not on_gpu(case):
        return
    left, budget = reading.size("available"), reading.size("requested")
    if not left or not budget or left < 0.98 * budget or not total or total < 4 * GIB:
        return
    facts = reading.facts
    lines = (facts.last("split_v0", "split_v0_part", "summary"), facts.first("weights"))
    yield RULE.found(
        f"Weights and activations were measured as 0.00 GiB, and {show_bytes(left)} of {show_bytes(budget)} was given "
        "to the KV cache.",
        "A model of that size does not exist: another device was measured than the one that holds it.",
        evidence=[shown(fact) for fact in lines if fact is not None],
        advice=(
            "CUDA_VISIBLE_DEVICES with the one GPU that vLLM is to use",
            "Run vLLM as a server of its own beside the trainer.",
        ),
        severity=Severity.WARNING if reading.came_up else Severity.ERROR,
    )
