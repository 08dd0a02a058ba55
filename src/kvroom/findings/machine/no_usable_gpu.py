"""KVR263: no GPU that can be used: none visible, no driver, or a driver that is too old."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR263",
    "no-usable-gpu",
    Severity.ERROR,
    "vLLM sees no GPU, or the driver is older than its CUDA.",
    explanation(
        what="Reads the errors of PyTorch, CUDA, Docker and vLLM about a missing GPU or an old driver.",
        why="""
            A container sees GPUs only when they are passed in and the NVIDIA Container Toolkit is installed.
            The driver must be new enough for the CUDA that PyTorch was built with; a newer driver always runs
            older CUDA.
            A wheel for the CPU finds no GPU whatever the machine has.
            """,
        example="`docker run vllm/vllm-openai` without `--gpus all`.",
        cure="""
            Make `nvidia-smi` work in the same container first.
            Docker: `--gpus all`; Kubernetes: a limit of `nvidia.com/gpu`.
            Old driver: update it, or take an image that was built with an older CUDA.
            """,
        since="All releases; `Failed to infer device type` since vLLM 0.6.2.",
        references="`vllm/config/device.py: DeviceConfig`, `vllm/platforms/__init__.py`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with what is missing."""
    fact = cause(case, "err_no_gpu", "err_driver_old", "err_device_type", "err_fabric")
    if fact is None:
        return
    if fact.id == "err_driver_old":
        title, why, advice = _driver(fact)
    elif fact.id == "err_fabric":
        title, why, advice = _not_ready(fact)
    elif "could not select device driver" in fact.text:
        title = "Docker cannot pass GPUs into containers."
        why = "The NVIDIA Container Toolkit is missing, or Docker was not told of it."
        advice = [
            "Install nvidia-container-toolkit.",
            "nvidia-ctk runtime configure --runtime=docker, then restart Docker",
        ]
    else:
        title = "vLLM found no device to run on." if fact.id == "err_device_type" else "PyTorch sees no GPU."
        why = "None is passed into the container, none is visible, or the driver does not work."
        advice = [
            "Run nvidia-smi in the same place: it must list the GPU.",
            "Docker: --gpus all; Kubernetes: resources.limits nvidia.com/gpu",
            "Check CUDA_VISIBLE_DEVICES: empty or a wrong number hides every GPU.",
        ]
        if fact.id == "err_device_type":
            advice.append("Check that the installed vLLM and PyTorch are built for this device, not for the CPU.")
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice)


def _not_ready(fact: Fact) -> tuple[str, str, list[str]]:
    if "mismatch" in fact.text:
        return (
            "The driver in the kernel and its library have different versions.",
            "The driver was updated while the old one was loaded.",
            ["Restart the machine."],
        )
    return (
        "CUDA is not ready on this machine (error 802).",
        "GPUs behind NVSwitch need the fabric manager of exactly the driver's version.",
        ["systemctl status nvidia-fabricmanager: install it in the driver's version and start it."],
    )


def _driver(fact: Fact) -> tuple[str, str, list[str]]:
    found = fact.whole("found")
    if "forward compatibility" in fact.text:
        return (
            "The CUDA of the image does not match the driver, and this card has no forward compatibility.",
            "Only data-centre cards can run a CUDA that is newer than the driver.",
            [
                "Update the driver, or reboot after an update.",
                "Take an image with an older CUDA.",
                "Keep the compat libraries of the image off LD_LIBRARY_PATH.",
            ],
        )
    upto = f" It supports CUDA up to {found // 1000}.{found % 1000 // 10}." if found and found >= 1000 else ""
    return (
        "The NVIDIA driver is older than the CUDA that PyTorch was built with.",
        f"A driver runs its own CUDA and older ones.{upto}",
        ["Update the NVIDIA driver.", "Take an image or wheel that was built with an older CUDA."],
    )
