"""KVR233: the utilisation leaves nothing for what is allocated outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument, on_gpu, overflow, short, utilization
from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.logs.reading import State
from kvroom.units import GIB, MIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR233",
    "nothing-outside-the-budget",
    Severity.WARNING,
    "A utilisation near 1 gives the whole card to the KV cache, and something always comes on top.",
    explanation(
        what="Reports a utilisation of 0.97 or more that leaves less than 1.5 GiB outside the budget.",
        why="""
            The budget covers weights, the profiled peak and the KV cache. Outside of it come the CUDA
            context, CUDA graphs before 0.20, the sampler's warm-up, workspaces of attention backends, and
            what the allocator loses to fragments while it serves.
            A start that passes the capacity check then fails in capture, or a server dies under load.
            """,
        example="0.98 of a 22 GiB card leaves 0.44 GiB; the CUDA graphs of a 27B model do not fit into it.",
        cure="0.90 to 0.95; or fewer graphs (`--enforce-eager`, smaller capture sizes) if every GiB counts.",
        since="All releases; since 0.20 an estimate of the graphs is inside the budget.",
        references="`vllm/v1/worker/gpu_worker.py: determine_available_memory`",
    ),
)
_LEAST = 3 * GIB // 2


def find(case: Case) -> Iterator[Finding]:
    """The finding for a budget that took the card, on a start that went on with it."""
    share, total = utilization(case), case.total_bytes
    facts = case.reading.facts
    if share is None or not 0.97 <= share <= 1 or not on_gpu(case):
        return
    if argument(case, "kv_cache_memory_bytes") or facts.first("reserved"):
        return
    outside = total * (1 - share) if total else None
    if outside is not None and outside >= _LEAST:
        return
    error = overflow(case, "kv_alloc", "graph_capture", "sampler_warmup", "serving")
    went_on = case.reading.came_up or (case.reading.state is State.UNFINISHED and facts.first("available", "budget_v0"))
    if error is None and not went_on:
        return
    room = "next to nothing" if outside is None or outside < MIB else f"{show_bytes(outside)} of the card"
    graphs = "" if case.since("0.20.0") else "CUDA graphs, "
    lower = _lower(total)
    yield RULE.found(
        f"--gpu-memory-utilization {short(share)} leaves {room} for everything outside the budget.",
        f"The CUDA context, {graphs}the sampler's warm-up, workspaces and fragments come on top of the budget.",
        evidence=(shown(error),) if error is not None else (Evidence(f"--gpu-memory-utilization {short(share)}"),),
        advice=(f"--gpu-memory-utilization {short(lower)}",),
    )


def _lower(total: int | None) -> float:
    """The utilisation that leaves 1.5 GiB, between 0.90 and 0.95; 0.95 where the card is unknown."""
    return 0.95 if not total else min(max(int((1 - _LEAST / total) * 100) / 100, 0.9), 0.95)
