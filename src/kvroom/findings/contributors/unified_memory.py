"""KVR230: the GPU shares its memory with the system, which distorts what vLLM measures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import overflow, shortage
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR230",
    "unified-memory",
    Severity.WARNING,
    "CPU and GPU share one memory: page cache, compilers and other programs count against vLLM.",
    explanation(
        what="""
            Reports a launch on a machine with unified memory (GB10 / DGX Spark, Jetson, APUs such as Strix
            Halo) that ran short, or that counts much memory as overhead.
            """,
        why="""
            "Free" memory excludes what Linux keeps as page cache, so a checkpoint that has just been read
            looks like memory in use. Compilers that run during the profile pass count as non-torch memory,
            for good. And the utilisation does not bound the peak of the profile pass: what a discrete card
            answers with an out-of-memory error takes the whole machine down here.
            """,
        example="""
            A first start on a GB10 measures a negative KV cache while the checkpoint is being cached; the
            second, with the same flags, starts.
            """,
        cure="""
            Start again once the files are cached and kernels are compiled, or drop the page cache before.
            Pin the cache with `--kv-cache-memory-bytes` and leave the system a tenth of the memory or more.
            `MAX_JOBS` bounds the number of compilers.
            """,
        since="All releases.",
        references="`vllm/utils/mem_utils.py: memory_profiling, MemorySnapshot`",
    ),
)
_NAMES = re.compile(r"\bGB10\b|DGX Spark|Jetson|\bOrin\b|\bThor\b|Strix|Radeon 80[56]0S|AI Max|MI300A", re.IGNORECASE)


def find(case: Case) -> Iterator[Finding]:
    """The finding where sharing the memory may have cost the start, or costs the cache."""
    name = case.device_name
    device = case.prediction.setup.machine.device if case.prediction is not None else None
    if not _NAMES.search(name) and not (device is not None and device.unified):
        return
    lack, facts = shortage(case), case.reading.facts
    fact = (
        facts.first("err_free", "host_killed", "told_page_cache", "told_pool_less")
        or overflow(case)
        or (lack.fact if lack and lack.nothing else None)
    )
    other = case.reading.size("other") or 0
    if fact is not None:
        severity, end = Severity.WARNING, _end(fact)
    elif lack is not None:
        fact, severity, end = lack.fact, Severity.NOTE, "and page cache or compilers may have shrunk the KV cache"
    elif other >= 3 * GIB:
        severity, end = Severity.NOTE, f"and {show_bytes(other)} counts as memory outside of torch"
    else:
        return
    yield RULE.found(
        f"The GPU ({name or 'unified'}) shares its memory with the system, {end}.",
        "Page cache, compilers and other programs are part of what vLLM measures, and change from start to start.",
        evidence=(shown(fact),) if fact is not None else (),
        advice=_advice(case),
        severity=severity,
    )


def _end(fact: Fact) -> str:
    if fact.id == "host_killed":
        return "and the system ended a process when it was full"
    if fact.id in {"told_page_cache", "told_pool_less"}:
        return "and page cache or compilers were counted as vLLM's own"
    if fact.id == "err_free":
        return "and less of it was free than was asked for; page cache counts as used"
    if "oom" in fact.id:
        return "and memory ran out; the driver cannot use what Linux keeps as page cache"
    return "and nothing is left for the KV cache; page cache and compilers may be part of what was measured"


def _advice(case: Case) -> Iterator[str]:
    yield "Start again when the checkpoint is cached and kernels are compiled, or drop the page cache first."
    if case.since("0.10.2") is not False:
        yield "A fixed --kv-cache-memory-bytes in place of a high utilisation, with a tenth left to the system."
    yield "MAX_JOBS=4 (bounds the compilers that run during a start)"
