"""The shortage on the CPU backend, where the KV cache is part of the host's memory."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from kvroom.findings.startup.common import share_flag, utilization_of
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

_SIZES = re.compile(r"\(([\d.]+)/([\d.]+) GiB\) on kv cache allocation .{0,60}for kv \((-?[\d.]+)")
_LEAST = GIB // 2
"""A cache to aim at where none is left."""


def host_shortage(case: Case, fact: Fact) -> tuple[str, str, tuple[str, ...]]:
    """Title, reason and advice for ``fact``, an error of the CPU backend about its cache."""
    found = _SIZES.search(fact.text)
    share = utilization_of(case) if case.since("0.20.0") is not False else None
    if fact.id == "err_cpu_worker":
        used, reserved = fact.gib("used") or 0, fact.gib("reserved") or 0
        title = f"The model and the runtime take {show_bytes(used)} of the {show_bytes(reserved)} set aside in RAM."
        return title, "Nothing is left of it for the KV cache.", _raise(share, used - reserved, None)
    if found is None:
        return "The host memory for the KV cache is not there.", "", ("Free host memory, or ask for a smaller cache.",)
    free, total, wanted = (round(float(number) * GIB) for number in found.groups())
    if wanted <= 0:
        title = f"The share of RAM leaves {show_bytes(wanted)} for the KV cache."
        why = "On the CPU backend --gpu-memory-utilization is a share of RAM, and the model takes more than it."
        return title, why, _raise(share, -wanted, total)
    title = f"{show_bytes(wanted)} of KV cache is asked for, and {show_bytes(free)} of RAM is free."
    advice = ["Free host memory."]
    if share is not None:
        lower = math.floor((share - (wanted - free) / total) * 100) / 100
        advice.insert(0, share_flag(lower) if lower > 0 else "Lower --gpu-memory-utilization (a share of RAM).")
    else:
        advice.insert(0, f"VLLM_CPU_KVCACHE_SPACE={max(free // GIB - 1, 1)}")
    return title, "On the CPU backend the KV cache is host memory.", tuple(advice)


def _raise(share: float | None, missing: int, total: int | None) -> tuple[str, ...]:
    if share is not None and total:
        wanted = math.ceil((share + (missing + _LEAST) / total) * 100) / 100
        return (share_flag(wanted),) if wanted < 1 else ("A smaller model, or a host with more RAM.",)
    return ("Raise --gpu-memory-utilization: on the CPU backend it is a share of RAM.",)
