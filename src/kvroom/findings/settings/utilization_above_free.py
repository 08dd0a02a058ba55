"""KVR102: the share of the card that is asked for is more than what is free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag, free_bytes
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.devices.device import GpuProcess
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR102",
    "utilization-above-free-memory",
    Severity.ERROR,
    "gpu_memory_utilization is a share of the whole card, and less than that is free.",
    explanation(
        what="""
            Compares the requested share (total memory x `--gpu-memory-utilization`) with the memory that is
            free before vLLM starts: as given or probed, else the total less a CUDA context of about 0.5 GiB.
            """,
        why="""
            The share is of the total, not of what happens to be free.
            Another server, a desktop or a notebook on the same card is not subtracted.
            Releases with a start-up check refuse to begin; older ones run out of memory later.
            """,
        example="""
            A 24 GB card on which a desktop holds 3 GiB has 20.5 GiB free.
            `--gpu-memory-utilization 0.9` asks for 21.1 GiB and is refused; 0.85 passes.
            """,
        cure="""
            Stop the other programs, or lower the utilisation to below free / total.
            To leave the check aside and still share the card, give a low utilisation and
            `--kv-cache-memory-bytes`.
            """,
        since="""
            The check exists since vLLM 0.9.1; earlier releases have none, and the finding is a warning there.
            """,
        references="""
            `vllm/v1/worker/utils.py: request_memory`, earlier `vllm/v1/worker/gpu_worker.py: init_device`
            """,
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the requested share exceeds the free memory."""
    ledger, settings, machine = prediction.ledger, prediction.settings, prediction.setup.machine
    if ledger is None or settings is None:
        return
    free, asked = free_bytes(prediction), ledger.requested.expected
    if asked <= free:
        return
    share = int(free / machine.device.total_bytes * 100) / 100
    known = machine.free_bytes is not None
    checked = bool(prediction.rules["startup_free_memory_check"])
    what = "free" if known else "free on an otherwise idle card"
    holders = [Evidence(_holder(process)) for process in machine.processes]
    advice = [f"--gpu-memory-utilization {share:g}"]
    if known:
        advice.append("Stop the other programs on the card.")
    yield RULE.found(
        f"{settings.gpu_memory_utilization:g} of the card is {show_bytes(asked)}; {show_bytes(free)} is {what}.",
        evidence=(flag("gpu_memory_utilization", settings.gpu_memory_utilization), *holders),
        advice=advice,
        severity=Severity.ERROR if known and checked else Severity.WARNING,
    )


def _holder(process: GpuProcess) -> str:
    size = f" holds {show_bytes(process.used_bytes)}" if process.used_bytes else ""
    return f"process {process.pid} {process.name}{size}"
