"""KVR204: less memory is free than the share that vLLM asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import ROUNDING, first, share_flag, unified
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR204",
    "free-memory-below-share",
    Severity.ERROR,
    "vLLM asks for a share of the whole card at the start, and less than that is free.",
    explanation(
        what="""
            Reports the check at the start of the worker that total x `--gpu-memory-utilization` is free, and
            says which utilisation would have passed.
            """,
        why="""
            The share is of the total memory, whatever others hold.
            What is missing belongs to another program, to a desktop, or to a server of before that did not
            end: killing the front end can leave an engine process behind.
            The check comes before the weights, so nothing of the model is on the card yet.
            From 0.11 it is made after the GPUs have been connected, so that buffers of NCCL count as used.
            """,
        example="""
            59.32 of 79.15 GiB are free and 0.9 asks for 71.24: 11.92 GiB are missing.
            0.74 would pass, if the model fits into 58.57 GiB.
            """,
        cure="""
            End the other program (`nvidia-smi` lists it), choose another card with `CUDA_VISIBLE_DEVICES`, or
            lower `--gpu-memory-utilization` to free / total rounded down.
            `--kv-cache-memory-bytes` does not switch the check off.
            """,
        since="vLLM 0.9.1; on the CPU backend 0.20.",
        references="`vllm/v1/worker/utils.py: request_memory`, earlier `vllm/v1/worker/gpu_worker.py: init_device`",
    ),
)


_UNIFIED = 0.85
"""A share that leaves the system its part where it has the memory in common with the GPU."""


def find(case: Case) -> Iterator[Finding]:
    """The finding with what is missing and the largest utilisation that passes."""
    facts = case.reading.facts
    error = facts.first("err_free", "err_free_external", "err_free_cpu")
    if error is None:
        yield from _in_words(case)
        return
    if case.reading.came_up:
        return
    free, total, requested, util = error.gib("free"), error.gib("total"), error.gib("requested"), error.number("util")
    if free is None or not total or requested is None:
        return
    cpu = error.id == "err_free_cpu"
    share = largest_share(free, total)
    used = total - free
    where = "the host" if cpu else error.values.get("device") or "the GPU"
    title = (
        f"Only {show_bytes(free)} of {show_bytes(total)} is free on {where}; utilisation {util:g} asks for "
        f"{show_bytes(requested)}, {show_bytes(max(requested - free, 0))} more."
    )
    why = (
        f"{show_bytes(used)} is in use before any weight is loaded. {'' if cpu else _holder(case, used, total)}".strip()
    )
    if share > 0:
        why += f" The largest utilisation that passes is {share:g}."
    holders = [Evidence(f"process {one.pid} {one.name}") for one in _processes(case)]
    yield RULE.found(title, why, evidence=(shown(error), *holders), advice=_advice(case, error, share))


def largest_share(free: int, total: int) -> float:
    """The largest utilisation in hundredths at which ``free`` bytes are enough, with the log's rounding against it.

    >>> largest_share(round(59.32 * 2**30), round(79.15 * 2**30))
    0.74
    """
    return max(math.floor((free - ROUNDING // 2) / (total + ROUNDING // 2) * 100), 0) / 100


def _in_words(case: Case) -> Iterator[Finding]:
    """The finding for texts that name a share but no sizes."""
    fact = case.reading.facts.first("told_free")
    if fact is None or case.reading.came_up:
        return
    util, share = fact.number("util"), fact.number("share")
    safe = util if "maximum safe" in fact.text else None
    util = share / 100 if share else util
    title = "Less memory is free than --gpu-memory-utilization asks for at the start"
    title += f"; {safe:g} is the most that passes." if safe else f": {util:g} of the card." if util else "."
    if safe is None and (util or 0) > _UNIFIED and (unified(case) or "unified" in fact.text):
        safe = _UNIFIED
    lower = (
        share_flag(math.floor(safe * 100) / 100)
        if safe
        else "Lower --gpu-memory-utilization to below free / total (nvidia-smi shows both)."
    )
    yield RULE.found(title, evidence=(shown(fact),), advice=(lower, "Stop the other programs on the card."))


def _processes(case: Case) -> tuple:  # type: ignore[type-arg]
    return case.prediction.setup.machine.processes if case.prediction is not None else ()


def _holder(case: Case, used: int, total: int) -> str:
    if case.prediction is not None and case.prediction.setup.machine.device.unified:
        return "The memory is shared with the CPU: the system, other programs and the page cache take their part."
    if used > 0.85 * total:
        return "So much is nearly always a server that still runs, or an engine process that a former run left behind."
    if used < 2 * GIB:
        return "That is the size of a desktop, of CUDA contexts or of buffers between GPUs."
    return "Another program holds it, or an engine process that a former run left behind."


def _advice(case: Case, error: Fact, share: float) -> tuple[str, ...]:
    free, total = error.gib("free") or 0, error.gib("total") or 1
    if error.id == "err_free_cpu":
        return first((share_flag(share) if share else None, "Free host memory."))
    ledger = case.prediction.ledger if case.prediction is not None else None
    least = ledger.weights.low + ledger.activation.low if ledger else 0
    lower = share_flag(share) if share >= 0.1 and least < share * total else None
    stop = "End the process that holds the card: nvidia-smi shows its number, kill it if it is left over."
    other = "Choose a card that is free with CUDA_VISIBLE_DEVICES." if error.id == "err_free" else None
    if free < total / 2:
        return first((stop, lower, other))
    return first((lower, stop, other))
