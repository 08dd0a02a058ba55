"""KVR231: WSL or a laptop, where the desktop holds part of the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import overflow, shortage
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR231",
    "display-or-wsl",
    Severity.WARNING,
    "Under WSL and on laptops Windows or the desktop holds GPU memory, and pinned host memory is scarce.",
    explanation(
        what="""
            Recognises WSL by vLLM's own warning and laptops by the name of the card, and reports a start that
            found too little free memory, ran out of it, or failed to pin host memory.
            """,
        why="""
            Windows, its browser and the compositor take 0.5 to 2 GiB of the card, more of a small one, and
            vLLM's utilisation is a share of the total.
            Under WSL2 the memory that may be pinned is limited too: buffers for swapping, offloading or
            multimodal inputs then fail with an error of the operating system, not of the GPU.
            """,
        example="""
            A 6 GB laptop card with 5.0 GiB free: the default utilisation asks for 5.4 to 5.5 GiB and is
            refused.
            """,
        cure="""
            Close what draws on the card, or let the desktop use the integrated GPU.
            Set the utilisation below free / total. Do without `--swap-space` and CPU offloading under WSL.
            """,
        since="All releases.",
        references="`vllm/utils/platform_utils.py: is_pin_memory_available`, `vllm/platforms/interface.py: in_wsl`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding where such a machine is shown and memory was the trouble."""
    facts = case.reading.facts
    wsl = facts.first("wsl")
    laptop = re.search(r"laptop|max-q|mobile", case.device_name, re.IGNORECASE)
    if wsl is None and not laptop:
        return
    where = "WSL" if wsl is not None else f"a laptop ({case.device_name})"
    pinned = facts.first("oom_os")
    if pinned is not None:
        yield RULE.found(
            f"This runs under {where}, and the system refused a buffer in pinned host memory.",
            "The error is of the operating system: the limit is on host memory, not on the GPU's.",
            evidence=[shown(fact) for fact in (pinned, wsl) if fact is not None],
            advice=(
                "Raise memory= in .wslconfig, or use native Linux.",
                "Leave out --cpu-offload-gb and --swap-space.",
            ),
        )
        return
    lack = shortage(case)
    fact = facts.first("err_free") or overflow(case) or (lack.fact if lack else None)
    free, total = case.reading.free_bytes, case.total_bytes
    if fact is None:
        return
    held = total - free if free is not None and total else None
    if held is not None and total and held <= total // 20:
        return
    size = f"{show_bytes(held)} of {show_bytes(total or 0)} was in use before vLLM began" if held else ""
    sure = fact.id == "err_free" or bool(held)
    yield RULE.found(
        f"This runs under {where}: {size or 'the desktop holds part of the card'}.",
        "The desktop and its programs draw on the same card, and utilisation is a share of its total.",
        evidence=[shown(found) for found in (fact, wsl) if found is not None],
        advice=("Close programs that use the GPU, or let the desktop run on the integrated one.",),
        severity=Severity.WARNING if sure else Severity.NOTE,
    )
