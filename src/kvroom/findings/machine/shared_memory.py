"""KVR262: /dev/shm is too small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause
from kvroom.units import MIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR262",
    "shared-memory-too-small",
    Severity.ERROR,
    "The ranks exchange data through /dev/shm, and it is full.",
    explanation(
        what="""
            Reads NCCL's error about a segment in /dev/shm, vLLM's check of its free space, and bus errors.
            """,
        why="""
            NCCL and vLLM's message queues put buffers into /dev/shm.
            Containers get 64 MiB of it unless told otherwise.
            A page that cannot be backed ends in a bus error, without a Python message.
            """,
        example="`docker run --gpus all` with `--tensor-parallel-size 2`, but without `--ipc=host`.",
        cure="""
            Docker: `--ipc=host` or `--shm-size 16g` (`shm_size: 16gb` in compose).
            Kubernetes: an emptyDir volume with `medium: Memory`, mounted at /dev/shm.
            """,
        since="All releases; vLLM's own check since 0.27.0.",
        references="`vllm/distributed/device_communicators/shm_broadcast.py`",
    ),
)
_ADVICE = (
    "Docker: --ipc=host",
    "Docker: --shm-size 16g (compose: shm_size: 16gb)",
    "Kubernetes: an emptyDir volume with medium: Memory, mounted at /dev/shm",
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the sizes that the message has."""
    fact = cause(case, "err_shm_space", "err_shm_nccl", under=("err_nccl", "err_bus"))
    if fact is None:
        fact = cause(case, "err_bus")
        if fact is not None:
            yield _bus(case, fact)
        return
    if fact.id == "err_shm_space":
        needed, free = (fact.whole("needed") or 0) * MIB, (fact.whole("free") or 0) * MIB
        what = f"the {fact.values['what']}" if "what" in fact.values else "vLLM"
        title = f"{fact.values['path']} has {show_bytes(free)} free, and {what} needs {show_bytes(needed)}."
    else:
        size = fact.whole("bytes")
        title = "NCCL could not get " + (f"{show_bytes(size)} of " if size else "") + "shared memory in /dev/shm."
    yield RULE.found(
        title,
        "Containers get 64 MiB of /dev/shm unless told otherwise.",
        evidence=(shown(fact),),
        advice=_ADVICE,
    )


def _bus(case: Case, fact: Fact) -> Finding:
    reading = case.reading
    one_gpu = (reading.gpus or 1) < 2
    advice = list(_ADVICE)
    why = "A page of /dev/shm that cannot be backed ends like this, without a Python message."
    if one_gpu and reading.stage == "weight_load":
        why += " While weights are read it can also be a weight file that was cut short."
        advice.append("Check the disk and the size of the weight files.")
    return RULE.found(
        "A process died of a bus error: /dev/shm is nearly always too small then.",
        why,
        evidence=(shown(fact),),
        advice=advice,
    )
