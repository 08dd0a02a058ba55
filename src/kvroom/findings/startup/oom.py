"""Out-of-memory errors of the GPU taken apart: where each happened and what its text says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvroom.findings.startup.common import utilization_of
from kvroom.findings.values import sentence
from kvroom.logs.reading import State
from kvroom.logs.stages import stage_of_error
from kvroom.units import GIB, MIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

_MEMORY_WORDS = re.compile(r"\bOOMs?\b|out of memory|OutOfMemory", re.IGNORECASE)
_OOM = ("oom", "oom_old", "oom_driver")
_TOLD = frozenset({"told_oom", "told_eager", "told_fails", "told_capture"})
"""How people put it who do not show the error."""
_PIECES = 128 * MIB
"""Unused memory in pieces below this is what every start has."""
_PARTS = {
    "oom_this": "used",
    "oom_allocated": "allocated",
    "oom_private": "private",
    "oom_fragments": "fragments",
}


@dataclass(frozen=True, slots=True)
class Oom:
    """An out-of-memory error of the GPU: where it happened and what its text says, in bytes."""

    fact: Fact
    stage: str
    """``unknown`` where neither the error nor what surrounds it tells."""
    wanted: int | None = None
    free: int | None = None
    total: int | None = None
    used: int | None = None
    """What the whole process held, in the driver's count."""
    allocated: int | None = None
    private: int | None = None
    """Of CUDA graphs."""
    fragments: int | None = None
    """Reserved by PyTorch and not in use."""

    @property
    def elsewhere(self) -> int | None:
        """What neither this process holds nor is free; None where the text does not say."""
        if not self.used or self.total is None or self.free is None:
            return None
        return max(self.total - self.free - self.used, 0)

    @property
    def fragmented(self) -> bool:
        """Whether PyTorch held enough unused memory, only not in one piece."""
        return bool(self.wanted and self.fragments and self.fragments >= max(self.wanted, _PIECES))


def ooms(case: Case, *stages: str) -> tuple[Oom, ...]:
    """The out-of-memory errors of a start that did not come up, one for each stage, in ``stages`` if given."""
    reading = case.reading
    if reading.came_up and reading.state is not State.DIED:
        return ()
    found: dict[str, Oom] = {}
    for fact in reading.facts.all(*_OOM):
        if "NV_ERR_NO_MEMORY" in fact.text:
            continue
        stage = reading.stage if fact is reading.error else stage_of_error(fact, reading.facts)
        if stage not in found or (found[stage].wanted is None and fact.size("wanted") is not None):
            found[stage] = _taken_apart(fact, stage, case)
    error = reading.error
    if not found and error is not None and error.id in _TOLD:
        found[reading.stage] = Oom(error, reading.stage)
    return tuple(oom for oom in found.values() if not stages or oom.stage in stages)


def weights_fill_it(case: Case, oom: Oom) -> bool:
    """Whether PyTorch alone held more than the budget: the KV cache stays within it, weights do not."""
    if oom.allocated is None or not oom.total or oom.private or (oom.wanted or 0) >= GIB:
        return False
    return oom.allocated > oom.total * max(utilization_of(case) or 0.95, 0.9)


def _taken_apart(fact: Fact, stage: str, case: Case) -> Oom:
    sizes = {name: fact.size(name) for name in ("wanted", "free", "total", "allocated")}
    if fact.id == "oom_old":
        reserved, allocated = fact.size("reserved"), sizes["allocated"]
        if reserved is not None and allocated is not None:
            sizes["fragments"] = max(reserved - allocated, 0)
    for part in case.reading.facts.all(*_PARTS):
        name = _PARTS[part.id]
        if fact.line <= part.line <= fact.line + 6 and part.process == fact.process and sizes.get(name) is None:
            sizes[name] = part.size(name)
    return Oom(fact, stage, **sizes)


def profiles_graphs(case: Case) -> Fact | None:
    """The line that shows that memory ran out while the size of CUDA graphs was measured; None where none does."""
    if case.reading.came_up:
        return None
    for fact in case.reading.facts.all("frame", "mentioned"):
        if "profile_cudagraph_memory" not in fact.text:
            continue
        near = any(fact.line <= oom.fact.line <= fact.line + 120 for oom in ooms(case))
        if near or _MEMORY_WORDS.search(fact.text):
            return fact
    return None


def anatomy(oom: Oom) -> str:
    """What an out-of-memory text says, in one or two sentences; empty where it has no numbers."""
    if oom.wanted is None:
        return ""
    left = f"{show_bytes(oom.wanted)} was asked for"
    if oom.free is not None:
        left += f" and {show_bytes(oom.free)} was free"
        left += f" of {show_bytes(oom.total)}" if oom.total else ""
    held = []
    if oom.allocated is not None:
        held.append(f"PyTorch had {show_bytes(oom.allocated)} in use")
    if oom.private:
        held.append(f"{show_bytes(oom.private)} of it in CUDA graph pools")
    if oom.fragments:
        held.append(f"{show_bytes(oom.fragments)} reserved but unused")
    if oom.elsewhere and oom.elsewhere > GIB // 4:
        held.append(f"{show_bytes(oom.elsewhere)} belonged to other processes")
    return sentence(left) + (" " + sentence("; ".join(held)) if held else "")


def defragment(case: Case, oom: Oom) -> tuple[str, ...]:
    """The allocator's setting against fragmentation, where that is the case and the setting may be used."""
    if not oom.fragmented or (case.setting("enable_sleep_mode") and not case.since("0.20.1")):
        return ()
    return ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (enough is reserved, but in pieces)",)
