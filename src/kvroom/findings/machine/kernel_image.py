"""KVR266: a build without kernels for this card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR266",
    "no-kernels-for-card",
    Severity.ERROR,
    "The installed build of PyTorch or vLLM has no kernels for this card's compute capability.",
    explanation(
        what="Reads CUDA's `no kernel image` and PyTorch's warning about the compute capability.",
        why="""
            CUDA code is compiled for a list of compute capabilities.
            Wheels leave out cards that came after them and, later, cards that they dropped.
            Blackwell (10.0, 12.0) needs builds with CUDA 12.8 or newer.
            """,
        example="An RTX 5090 (12.0) with wheels for CUDA 12.4.",
        cure="""
            New card: a newer vLLM with the PyTorch that it requires, or its image.
            Old card: the last release that still ran on it, or a build from source with `TORCH_CUDA_ARCH_LIST`.
            """,
        since="By release.",
        references="`vllm/CMakeLists.txt: CUDA_SUPPORTED_ARCHS`",
    ),
)
_CARD = re.compile(r"((?:NVIDIA|Tesla|GeForce|Quadro)[\w .-]{1,60}?) with CUDA capability sm_(\d{2,3})")
_BLACKWELL = 100


def find(case: Case) -> Iterator[Finding]:
    """The finding with the card where PyTorch names it."""
    fact = cause(case, "kernel_image")
    if fact is None:
        return
    found = next((hit for near in case.reading.facts.all("kernel_image") if (hit := _CARD.search(near.text))), None)
    number = int(found[2]) if found else None
    card = f"{found[1]} ({number // 10}.{number % 10})" if found and number else case.reading.device or "this card"
    new = number is not None and number >= _BLACKWELL
    advice = []
    if number is None or new:
        advice.append(
            "Take a newer vLLM with the PyTorch that it requires, built with CUDA 12.8 or newer for Blackwell."
        )
    if not new:
        advice.append("On an old card take the last vLLM that ran on it, or build with TORCH_CUDA_ARCH_LIST.")
    advice.append("Do not mix wheels: install vLLM into a fresh environment, or use its image.")
    yield RULE.found(
        f"The installed build has no kernels for {card}.",
        "PyTorch and vLLM hold compiled code for a list of compute capabilities, and this one is not on it.",
        evidence=(shown(fact),),
        advice=advice,
    )
