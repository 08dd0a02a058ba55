"""KVR272: files that cannot be written: a full disk, or no right to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause, short

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR272",
    "files-not-writable",
    Severity.ERROR,
    "A disk is full, or the user that runs vLLM may not write where it wants to.",
    explanation(
        what="Reads `No space left on device`, `Permission denied` and `Read-only file system`.",
        why="""
            vLLM writes models into the cache of the hub, compiled graphs into `~/.cache/vllm`, kernels into
            `~/.triton` and `~/.cache/flashinfer`, and message queues into /dev/shm.
            Containers with a random or unprivileged user often have a home folder `/` that they cannot write.
            """,
        example="`PermissionError: [Errno 13] Permission denied: '/.cache'` in a pod with `runAsUser`.",
        cure="""
            A larger or another disk for the cache (`HF_HOME`, `--download-dir`), or a home folder that can be
            written (`HOME=/tmp`, `VLLM_CACHE_ROOT`, `TRITON_CACHE_DIR`).
            """,
        since="All releases.",
        references="`vllm/envs.py: VLLM_CACHE_ROOT`, the hub's `HF_HOME`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the path."""
    fact = cause(case, "err_disk", "err_permission")
    if fact is None:
        return
    if fact.id == "err_disk":
        title = "A disk is full."
        why = "Downloads, the cache of compiled graphs, or /dev/shm, where vLLM keeps its queues: df -h shows which."
        advice = [
            "HF_HOME=/path/with/room (the models), VLLM_CACHE_ROOT for compiled graphs",
            "If /dev/shm is full: --shm-size 16g or --ipc=host for Docker.",
        ]
    else:
        path = short(fact.values["path"])
        title = f"The user that runs vLLM may not use {path}."
        why = "In containers the user often has a home folder that is not its own, or the volume belongs to root."
        advice = [
            "HOME=/tmp HF_HOME=/path/that/can/be/written",
            "Give the volume to the user: chown, or fsGroup in Kubernetes.",
        ]
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice)
