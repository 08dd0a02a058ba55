"""What the findings about serving share: the statistics, room for the KV cache, memory that ran out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence
from kvroom.findings.startup.common import first, higher_share, more_ranks, pinned_bytes, takes_fp8, utilization_of
from kvroom.findings.startup.oom import ooms
from kvroom.findings.values import number_of
from kvroom.logs.serving import Load, Moment
from kvroom.units import MIB

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.findings.startup.oom import Oom
    from kvroom.logs.facts import Fact

MARGIN = 256 * MIB
"""What is left free beyond the bytes that were missing: the next request asks for a little more."""
_ENDS = ("engine_fatal", "engine_dead", "engine_dead_v0")
"""Printed only by an engine that had been ready."""
_HIGHEST = 0.95
_TRACEBACK = 200
"""Lines that a traceback has at most."""
_PIECES = 200 * MIB
"""Less than this in pieces is what every allocator holds."""


def load_of(case: Case) -> Load:
    """The statistics of the log, also those of which a paste keeps only the short form or a wrapped line."""
    if case.reading.load.count:
        return case.reading.load
    load = Load()
    for fact in case.reading.facts.all("stats_short"):
        load.add(fact.line, fact.text.encode())
    return load


def said(moment: Moment | None) -> tuple[Evidence, ...]:
    """A line of statistics as evidence, without the parts that say nothing here."""
    if moment is None:
        return ()
    parts = [f"Running: {moment.running} reqs", f"Waiting: {moment.waiting} reqs"]
    if moment.preemptions:
        parts.append(f"Preemptions: {moment.preemptions}")
    if moment.kv_percent is not None:
        parts.append(f"KV cache usage: {moment.kv_percent:.1f}%")
    return (Evidence(", ".join(parts), moment.line),)


def full_requests(case: Case) -> float | None:
    """How many requests of the full length the pool holds, as the log says."""
    pool = case.reading.pool
    if pool.max_concurrency is None and pool.tokens and pool.max_model_len:
        return pool.tokens / pool.max_model_len
    return pool.max_concurrency


def pool_text(case: Case) -> str:
    """The pool in words: its tokens and how many full requests they are; empty where the log does not say."""
    pool, held = case.reading.pool, full_requests(case)
    if pool.tokens is None and held is None:
        return ""
    room = f"{pool.tokens:,} tokens" if pool.tokens is not None else ""
    if held is not None:
        length = f" of {pool.max_model_len:,} tokens" if pool.max_model_len else " of the full length"
        room += f"{', ' if room else ''}{held:.2f} requests{length}"
    return f"The pool holds {room}."


def more_room(case: Case) -> tuple[str, ...]:
    """Remedies that enlarge the pool, the cheapest first."""
    found: list[str | None] = []
    override = number_of(case.asked("num_gpu_blocks_override"))
    if override:
        found.append(f"Leave out --num-gpu-blocks-override {override:.0f}, which fixes the pool.")
    elif pinned_bytes(case):
        found.append("A larger --kv-cache-memory-bytes, as far as the card has room.")
    else:
        share = utilization_of(case)
        if share is None or share < _HIGHEST:
            found.append(higher_share(case))
    if takes_fp8(case):
        found.append("--kv-cache-dtype fp8 (where model and card take it: about twice the tokens)")
    found.append(more_ranks(case) or "Another replica, or a model with smaller weights.")
    return first(found)


def served_ooms(case: Case) -> tuple[Oom, ...]:
    """The out-of-memory errors that struck an engine which had been ready; a wake-up is left to its own finding."""
    if wakes(case):
        return ()
    ended = case.reading.facts.first(*_ENDS) is not None
    return tuple(oom for oom in ooms(case) if oom.stage == "serving" or ended)


def wakes(case: Case) -> tuple[Fact, ...]:
    """The lines that show memory running out while sleep mode maps it again; empty where that is not so."""
    facts = case.reading.facts
    failed = facts.first("oom_driver", "oom", "oom_old")
    if failed is None:
        return ()
    near = [fact for fact in facts.all("frame", "mentioned") if 0 <= failed.line - fact.line <= _TRACEBACK]
    calls = [fact for fact in near if "wake_up" in fact.text and "HTTP/" not in fact.text]
    mapped = facts.first("cumem") if case.reading.stage in {"serving", "unknown"} else None
    sign = calls[0] if calls else mapped
    return (failed, sign) if sign is not None else ()


def lower_share(case: Case, oom: Oom) -> str:
    """The option that leaves what was missing, and a margin, outside of the budget."""
    missing = max((oom.wanted or 0) - (oom.free or 0), 0) + MARGIN
    pinned = pinned_bytes(case)
    if pinned:
        return f"--kv-cache-memory-bytes {max(pinned - missing, 0) // MIB * MIB}"
    total, share = case.total_bytes or oom.total, utilization_of(case)
    step = math.ceil(missing / total * 100) / 100 if total else 0.02
    if share is None or share - step <= 0:
        return f"Lower --gpu-memory-utilization by {step:.2f}."
    return f"--gpu-memory-utilization {math.floor((share - step) * 100 + 1e-6) / 100:g}"


def in_pieces(oom: Oom) -> int | None:
    """The memory that would have been enough, had it been in one piece; None where there was not enough."""
    if oom.wanted is None:
        return None
    if oom.fragments is not None and oom.fragments >= max(oom.wanted, _PIECES):
        return oom.fragments
    return oom.free if oom.free is not None and oom.free >= oom.wanted else None


def segments(case: Case, oom: Oom) -> str | None:
    """The setting that joins free pieces, under the name that this PyTorch gives it; None where vLLM refuses it."""
    if case.setting("enable_sleep_mode") and not case.since("0.20.1"):
        return None
    if case.setting("kv_transfer_config") and case.since("0.21.0") is not False:
        return None
    name = "PYTORCH_ALLOC_CONF" if "PYTORCH_ALLOC_CONF" in oom.fact.text else "PYTORCH_CUDA_ALLOC_CONF"
    return f"{name}=expandable_segments:True"
