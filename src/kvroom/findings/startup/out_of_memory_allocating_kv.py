"""KVR209: the KV cache was sized, and the memory for it was not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import first, less_share, lower_share, pinned_bytes, share_flag
from kvroom.findings.startup.oom import Oom, anatomy, defragment, ooms
from kvroom.logs.reading import State
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR209",
    "out-of-memory-allocating-kv",
    Severity.ERROR,
    "The KV cache was promised more memory than the card had when it was allocated.",
    explanation(
        what="""
            Reports an out-of-memory error while the tensors of the KV cache are allocated, after its size was
            settled.
            Where the cache was fixed in bytes and the log ends in a bare failure, it is named as the likely
            cause.
            """,
        why="""
            A measured size fits by construction, so something differs from the measurement: another program
            took memory in between, the profile looked at another device (weights of 0.00 GiB are the sign),
            or the size was not measured at all.
            `--kv-cache-memory-bytes` and `--num-gpu-blocks-override` are taken as they are, whatever the
            weights leave.
            """,
        example="""
            5,583,457,484 bytes were fixed on a headless card of 24 GB; on the same card with a desktop of 1.5
            GiB the allocation fails.
            """,
        cure="""
            Lower the number of bytes by what is missing, or leave the size to the profile; else end the other
            program, or lower `--gpu-memory-utilization`.
            """,
        since="All releases; the size in bytes since 0.10.2.",
        references="`vllm/v1/worker/gpu_model_runner.py: initialize_kv_cache`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding for an error in the allocation, or for a fixed size and a failure without a cause."""
    served = case.reading.facts.first("engine_dead", "engine_dead_v0", "engine_fatal")
    for oom in () if served else ooms(case, "kv_alloc", "kv_sizing"):
        sure = oom.stage == "kv_alloc"
        size = f"{show_bytes(oom.wanted)} did not fit" if oom.wanted is not None else "the GPU is full"
        where = "while the KV cache was allocated" if sure else "after the KV cache had been sized"
        yield RULE.found(
            f"Out of memory {where}: {size}.",
            f"{anatomy(oom)} {_why(case)}".strip(),
            evidence=(shown(oom.fact),),
            advice=_advice(case, oom),
            severity=None if sure else Severity.WARNING,
        )
        return
    pinned, reading = pinned_bytes(case), case.reading
    symptom = reading.facts.first("err_engine_init", "err_engine_start", "err_worker_start")
    sized = reading.stage in {"unknown", "config", "engine_boot", "profile", "kv_alloc"}
    if pinned and symptom and sized and reading.state is State.FAILED and _no_cause(case):
        yield RULE.found(
            f"Likely out of memory: the KV cache is fixed at {show_bytes(pinned)}, and no line names a cause.",
            "A size in bytes is taken without regard to what the weights and other programs leave. "
            "The lines of EngineCore before this one would say it.",
            evidence=(Evidence(f"--kv-cache-memory-bytes {pinned}"), shown(symptom)),
            advice=_advice(case, None),
            severity=Severity.WARNING,
        )


def _no_cause(case: Case) -> bool:
    return case.reading.error is None or case.reading.error.id == "exception"


def _why(case: Case) -> str:
    pinned, available = pinned_bytes(case), case.reading.size("available")
    if pinned:
        return f"The size of {show_bytes(pinned)} was given, not measured: nothing checked that it fits."
    weights = case.reading.size("weights")
    if available and weights is not None and weights < GIB // 50:
        return (
            f"The profile saw {show_bytes(weights)} of weights and gave all {show_bytes(available)} to the cache: "
            "it looked at another device than the one that holds the model."
        )
    if available:
        return f"{show_bytes(available)} had been measured as available, so less was free when it was taken."
    return ""


def _advice(case: Case, oom: Oom | None) -> tuple[str, ...]:
    pinned = pinned_bytes(case)
    missing = max((oom.wanted or GIB) - (oom.free or 0), GIB // 4) if oom else GIB
    others = oom.elsewhere if oom else None
    stop = f"Stop the other programs: they hold {show_bytes(others)}." if others and others > GIB // 2 else None
    defragmented = defragment(case, oom) if oom else ()
    if pinned:
        lower = f"--kv-cache-memory-bytes {pinned - missing}" if pinned > 2 * missing else None
        return first((lower, "Drop --kv-cache-memory-bytes: vLLM then measures what is left.", stop, *defragmented))
    share = less_share(case, missing + GIB // 2)
    lower = share_flag(share) if share else lower_share(case)
    return first((stop, *defragmented, lower))
