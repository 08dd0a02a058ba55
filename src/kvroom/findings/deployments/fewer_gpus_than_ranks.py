"""KVR181: the pod gets fewer GPUs than the parallel sizes need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation

if TYPE_CHECKING:
    from kvroom.findings.deployments.place import Placed

RULE = Rule(
    "KVR181",
    "fewer-gpus-than-ranks",
    Severity.ERROR,
    "The manifest gives the server fewer GPUs than its parallel sizes need.",
    explanation(
        what="""
            Compares tensor x pipeline x data parallel size with the GPUs that the container's resources ask for,
            times the pods of a LeaderWorkerSet, a multi-node KServe service or a Ray cluster.
            """,
        why="""
            The container sees only the GPUs that it asks for.
            Since vLLM 0.13 the server refuses to start; before, a rank fails on a device that does not exist.
            Ray waits for GPUs that never come.
            """,
        example="`--tensor-parallel-size 2` with `nvidia.com/gpu: 1`.",
        cure="Ask for as many GPUs as the sizes multiply to, or lower the sizes.",
        since="All releases.",
        references="`vllm/config/parallel.py: ParallelConfig`",
    ),
)


def find(placed: Placed) -> Iterator[Finding]:
    """The finding with both numbers."""
    pod = placed.pod
    if pod.gpus is None or pod.gpus * pod.nodes >= placed.world:
        return
    spread = f"{pod.nodes} x {pod.gpus}" if pod.nodes > 1 else str(pod.gpus)
    per_pod = -(-placed.world // pod.nodes)
    yield RULE.found(
        f"The parallel sizes need {placed.world} GPUs; {pod.kind} gets {spread}.",
        evidence=(placed.shown("gpus", f"{pod.gpus} GPUs a pod"),),
        advice=(f"Ask for {per_pod} GPUs a pod, or lower the parallel sizes.",),
    )
