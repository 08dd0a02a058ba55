"""KVR182: /dev/shm of the container is the default 64 MiB or little more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.units import MIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.deployments.place import Placed

LEAST = 512 * MIB
"""Less is not enough: ten chunks of 16 MiB to 24 MiB of vLLM's queue, and NCCL's segments for each pair of GPUs."""

RULE = Rule(
    "KVR182",
    "shared-memory-left-at-default",
    Severity.WARNING,
    "Several GPUs exchange data through /dev/shm, of which containers get 64 MiB unless told otherwise.",
    explanation(
        what="""
            Looks for a volume at /dev/shm, the host's IPC namespace, or compose's `shm_size`, in a pod or service
            whose tensor or pipeline parallel size is above 1.
            """,
        why="""
            vLLM's message queue takes 160 MiB (240 MiB before 0.9) and NCCL puts buffers there where GPUs have no
            direct way to each other.
            A page that cannot be backed ends in a bus error; since 0.27 vLLM refuses beforehand.
            """,
        example="A Deployment with `--tensor-parallel-size 2` and no volume at /dev/shm.",
        cure="""
            Kubernetes: an emptyDir volume with `medium: Memory` mounted at /dev/shm (it counts as memory of the
            container).
            Compose: `shm_size: 16gb` or `ipc: host`.
            """,
        since="All releases; vLLM's own check since 0.27.0.",
        references="`vllm/distributed/device_communicators/shm_broadcast.py: MessageQueue`",
    ),
)


def find(placed: Placed) -> Iterator[Finding]:
    """The finding where several ranks share a node and /dev/shm is too small for them."""
    pod = placed.pod
    ranks = min(placed.world, pod.gpus or placed.world)
    if ranks < 2 or pod.shared_memory is None or pod.shared_memory >= LEAST:
        return
    cure = "an emptyDir volume with medium: Memory, mounted at /dev/shm" if pod.cluster else "shm_size: 16gb"
    yield RULE.found(
        f"{ranks} ranks share {show_bytes(pod.shared_memory)} of /dev/shm.",
        evidence=(placed.shown("shared_memory", "/dev/shm"),),  # noqa: S108
        advice=(f"Give it {cure}.",),
    )
