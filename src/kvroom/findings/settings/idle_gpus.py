"""KVR134: GPUs that the launch does not use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag, world_size
from kvroom.ledger.verdict import Status

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR134",
    "gpus-left-idle",
    Severity.NOTE,
    "vLLM uses tensor x pipeline x data parallel GPUs, and not the others that are there.",
    explanation(
        what="Compares the number of GPUs with the product of the parallel sizes.",
        why="""
            vLLM does not spread over GPUs by itself: without parallel sizes it takes the first one.
            A launch that fails for want of memory may have it next door.
            """,
        example="Two RTX 3090 and no `--tensor-parallel-size`: 24 GB are used, not 48.",
        cure="""
            `--tensor-parallel-size` with the number of GPUs (it has to divide the attention heads), or more
            replicas with `--data-parallel-size`.
            """,
        since="All releases.",
        references="`vllm/config/parallel.py: ParallelConfig.world_size`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where GPUs remain; a warning where the launch does not surely fit."""
    count, world = prediction.setup.machine.count, world_size(prediction)
    if count <= world:
        return
    fits = prediction.verdict.status is Status.FITS
    heads = prediction.setup.shape.heads
    size = max((n for n in range(1, count + 1) if not heads % n), default=1)
    yield RULE.found(
        f"{world} of {count} GPUs {'is' if world == 1 else 'are'} used.",
        evidence=(flag("tensor_parallel_size", prediction.setup.args.tensor_parallel_size),),
        advice=(f"--tensor-parallel-size {size}",) if size > world else (),
        severity=None if fits else Severity.WARNING,
    )
