"""KVR261: the GPUs, or the machines, cannot talk to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause
from kvroom.findings.startup.common import utilization_of

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR261",
    "ranks-cannot-connect",
    Severity.ERROR,
    "NCCL could not connect the GPUs, or a rank waited in vain for the others.",
    explanation(
        what="Reads the errors of NCCL and of the rendezvous in which the ranks find each other.",
        why="""
            NCCL moves data by direct access between GPUs (P2P), by shared memory in /dev/shm, or by network.
            `unhandled system error` is most often a full /dev/shm; `unhandled cuda error` a P2P path that the
            board, the virtual machine or the IOMMU does not give; a time-out a rank that died or an interface
            that the others do not reach.
            The message itself says little: the reason stands in the log of `NCCL_DEBUG=INFO`.
            """,
        example="`NCCL error ... unhandled system error` in a container with 64 MiB of /dev/shm.",
        cure="""
            In this order: `NCCL_DEBUG=INFO` and read its last WARN; a larger /dev/shm; `NCCL_P2P_DISABLE=1`;
            `--disable-custom-all-reduce`; between machines `NCCL_SOCKET_IFNAME`, `GLOO_SOCKET_IFNAME` and
            `VLLM_HOST_IP` on the interface that they share.
            """,
        since="All releases.",
        references="`vllm/distributed/device_communicators/pynccl.py`, NCCL's environment variables",
    ),
)
_REASONS = (
    "unhandled system error",
    "unhandled cuda error",
    "internal error",
    "invalid usage",
    "invalid argument",
    "remote process exited or there was a network error",
    "out of memory",
)
_DEBUG = "NCCL_DEBUG=INFO (then read the last NCCL WARN)"
_SHM = "A larger /dev/shm: --shm-size 16g or --ipc=host for Docker."
_P2P = "NCCL_P2P_DISABLE=1"
_INTERFACE = "Between machines: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME and VLLM_HOST_IP on the interface they share."


def find(case: Case) -> Iterator[Finding]:
    """The finding with NCCL's own reason."""
    fact = cause(case, "err_nccl", "err_init_timeout", "err_nccl_watchdog")
    if fact is None or case.reading.facts.first("err_shm_nccl", "err_shm_space"):
        return
    if fact.id == "err_nccl_watchdog":
        yield RULE.found(
            "A collective operation of NCCL did not end in time.",
            "One rank did not take part: it died, it hangs, or it waits for another operation.",
            evidence=(shown(fact),),
            advice=("Look for an earlier error of another rank.", _DEBUG, "--disable-custom-all-reduce", _P2P),
        )
        return
    if fact.id == "err_init_timeout":
        waited = fact.whole("ms")
        after = f" within {waited / 1000:.0f} s" if waited else ""
        yield RULE.found(
            f"A rank did not find the others{after}.",
            "A rank that died earlier, another master address or port, or an interface that is out of reach.",
            evidence=(shown(fact),),
            advice=("Look for an earlier error of another rank.", _INTERFACE, _DEBUG),
        )
        return
    texts = " ".join(near.text for near in case.reading.facts.all("err_nccl")).lower()
    reason = next((words for words in _REASONS if words in texts), "")
    share = utilization_of(case)
    if reason == "out of memory" and share:
        advice = [f"--gpu-memory-utilization {share - 0.05:.2g} (NCCL's buffers lie outside the budget)"]
    elif reason == "invalid usage" or re.search("duplicate gpu", texts):
        advice = ["Give every rank a GPU of its own: check CUDA_VISIBLE_DEVICES.", _DEBUG]
    elif reason.startswith("remote"):
        advice = ["Look for an earlier error of another rank: this one only lost its partner.", _DEBUG, _INTERFACE]
    elif reason == "unhandled cuda error":
        advice = [_DEBUG, _P2P, "--disable-custom-all-reduce", _SHM]
    else:
        advice = [_DEBUG, _SHM, _P2P, "--disable-custom-all-reduce"]
        if (case.reading.gpus or 0) > 8:
            advice[3] = _INTERFACE
    gpus = f"the {case.reading.gpus} GPUs" if (case.reading.gpus or 0) > 1 else "the GPUs"
    yield RULE.found(
        f"NCCL could not connect {gpus}" + (f": {reason}." if reason else "."),
        "",
        evidence=(shown(fact),),
        advice=advice,
    )
