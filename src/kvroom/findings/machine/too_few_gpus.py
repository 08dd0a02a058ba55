"""KVR265: more ranks than GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause
from kvroom.logs.reading import State

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR265",
    "too-few-gpus",
    Severity.ERROR,
    "The parallel sizes ask for more GPUs than there are.",
    explanation(
        what="""
            Reads the refusals of a world size above the number of GPUs, CUDA's `invalid device ordinal`, and a
            Ray cluster that does not come up with the GPUs asked for.
            """,
        why="""
            Tensor x pipeline parallel size is the number of GPUs that one replica takes.
            Releases before 0.13 do not compare it with the machine: the surplus rank fails on a device number
            that does not exist.
            Ray waits for GPUs instead of failing; other jobs may hold them.
            """,
        example="`--tensor-parallel-size 4` on a machine with two GPUs.",
        cure="""
            Smaller parallel sizes, all GPUs passed into the container, or more machines through Ray
            (`--distributed-executor-backend ray`).
            """,
        since="The check since vLLM 0.13.0.",
        references="`vllm/config/parallel.py: ParallelConfig`, `vllm/v1/executor/ray_utils.py`",
    ),
)
_LONG = 60
"""Seconds that a cluster may take to give GPUs."""


def find(case: Case) -> Iterator[Finding]:
    """The finding with both numbers."""
    fact = cause(case, "err_world", "err_world_ray", "err_ordinal")
    if fact is not None:
        yield _refused(case, fact)
        return
    waiting = case.reading.facts.last("ray_waiting")
    if waiting is None or (waiting.number("seconds") or 0) < _LONG:
        return
    went_on = any(fact.line > waiting.line and fact.role in {"reached", "passed"} for fact in case.reading.facts)
    if case.reading.error is None and case.reading.state in {State.FAILED, State.UNFINISHED} and not went_on:
        yield RULE.found(
            f"Ray has not given the GPUs within {waiting.values['seconds']} s.",
            "The cluster has too few free GPUs, a node is missing, or the nodes know each other by other addresses.",
            evidence=(shown(waiting),),
            advice=(
                "ray status: compare the GPUs asked for with those that are free.",
                "Set VLLM_HOST_IP on every node to the address that Ray uses.",
                "Stop other jobs of the cluster, or lower the parallel sizes.",
            ),
        )


def _refused(case: Case, fact: Fact) -> Finding:
    world, gpus = fact.whole("world_size") or case.reading.gpus, fact.whole("gpus")
    need = f"The parallel sizes need {world} GPUs" if world and world > 1 else "The parallel sizes need more GPUs"
    if fact.id == "err_ordinal":
        title = f"{need}, and a rank asked for one that does not exist."
    elif gpus is not None:
        title = f"{need}, and this machine shows {gpus}."
    else:
        title = (
            f"{need} than the Ray cluster has." if need.endswith("more GPUs") else f"{need}, and the cluster has fewer."
        )
    advice = ["Compare with nvidia-smi -L in the same container; check --gpus and CUDA_VISIBLE_DEVICES."]
    if gpus and not case.whole("pipeline_parallel_size"):
        power = 1 << (gpus.bit_length() - 1)
        advice.insert(0, f"--tensor-parallel-size {power}")
    advice.append("Several machines: start a Ray cluster and add --distributed-executor-backend ray.")
    return RULE.found(title, "Tensor x pipeline parallel size is the number.", evidence=(shown(fact),), advice=advice)
