"""KVR213: the host ran out of memory, not the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import first, less_share, share_flag, unified
from kvroom.logs.reading import State
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR213",
    "host-memory-exhausted",
    Severity.ERROR,
    "The kernel or the container's limit ended the process for want of host memory.",
    explanation(
        what="""
            Reports signs of the OOM killer (exit code 137, `OOMKilled`), of a failed allocation in host
            memory, of a driver that gets no pages (`NV_ERR_NO_MEMORY`), and of many compilers at once.
            """,
        why="""
            No flag about the GPU cures this.
            While weights load, the page cache of the files counts towards a container's limit, and loaders may
            hold a shard in full.
            While kernels are compiled, `cicc` and `nvcc` run in parallel, one for each core unless `MAX_JOBS`
            says otherwise, with several GiB each.
            On unified memory (GB10, Jetson) the GPU's share is taken from the same pool as the system's, the
            page cache included, so a high utilisation starves the host.
            """,
        example="""
            16 compilers of 5.7 GiB each take 91 GiB of a host with 105 GiB free, beside 3.9 GiB of vLLM.
            """,
        cure="""
            Raise the container's memory limit; `MAX_JOBS=4` while kernels are compiled; on unified memory a
            lower `--gpu-memory-utilization` and no other programs.
            `dmesg` or `kubectl describe pod` says whom the kernel killed.
            """,
        since="All releases; kernels compiled at the start (FlashInfer, DeepGEMM) mostly since 0.10.",
        references="`docs/usage/troubleshooting.md`, the kernel's `oom_kill` messages, PyTorch's `MAX_JOBS`",
    ),
)
_PROSE = frozenset({"mentioned", "told_warmup", "told_oom"})
_HOST_WORDS = re.compile(r"MemAvailable|\bhost\b.{0,20}\b(?:hangs?|hung|unreachable|rebooted|froze)", re.IGNORECASE)
_MANY = 8
"""Compilers at once from which their memory counts."""


def find(case: Case) -> Iterator[Finding]:
    """The finding with the sign and what takes host memory at that stage."""
    reading = case.reading
    if reading.state is State.SERVING:
        return
    facts = reading.facts
    compilers = next((fact for fact in facts.all("jit_compilers") if (fact.whole("processes") or 0) >= _MANY), None)
    driver = next((fact for fact in facts.all("oom_driver") if "NV_ERR_NO_MEMORY" in fact.text), None)
    killed, full = facts.first("host_killed", "host_killed_shell"), facts.first("host_full")
    words = next((fact for fact in facts if fact.id in _PROSE and _HOST_WORDS.search(fact.text)), None)
    sign = killed or driver or full or words or (compilers if not reading.came_up else None)
    if sign is None or (sign is full and reading.error is not full):
        return
    stage = reading.stage
    shared = unified(case) or sign is driver or sign is words
    yield RULE.found(
        _title(sign, driver, compilers, stage),
        _why(case, compilers, shared, stage),
        evidence=[shown(fact) for fact in {id(fact): fact for fact in (compilers, sign) if fact}.values()],
        advice=_advice(case, compilers, shared, stage),
        severity=Severity.WARNING if sign is compilers else None,
    )


def _title(sign: Fact, driver: Fact | None, compilers: Fact | None, stage: str) -> str:
    where = _WHERE.get(stage, "")
    if compilers is not None:
        count, size = compilers.whole("processes") or 0, show_bytes(compilers.gib("rss") or 0)
        end = " and the process was killed" if sign.id.startswith("host_killed") else ""
        return f"{count} compilers at once took {size} of host memory{end}."
    if sign is driver:
        return f"The driver got no memory from the host{where}."
    if sign.id in _PROSE:
        return f"The host was short of memory{where}."
    if sign.id == "host_full":
        return f"Host memory could not be allocated{where}."
    return f"The process was killed from outside{where}, as the kernel does when host memory runs out."


_WHERE = {
    "weight_load": " while the weights were loaded",
    "compile": " while kernels were compiled",
    "profile": " during the profile run",
    "kv_alloc": " while the KV cache was allocated",
    "sampler_warmup": " in the warm-up after the KV cache",
    "graph_capture": " while CUDA graphs were captured",
    "serving": " while it served",
}


def _why(case: Case, compilers: Fact | None, shared: bool, stage: str) -> str:
    if compilers is not None:
        each = (compilers.gib("rss") or 0) / (compilers.whole("processes") or 1)
        return f"Each compiler takes about {show_bytes(each)}; as many run as there are cores unless MAX_JOBS is set."
    if shared:
        return (
            "On unified memory the GPU takes its share from what the system uses too; the driver cannot use memory "
            "that Linux counts as available but holds as page cache."
        )
    if stage == "weight_load":
        fact = case.reading.facts.last("checkpoint")
        sizes = ""
        if fact is not None and fact.gib("checkpoint") and fact.gib("ram"):
            sizes = f"The checkpoint has {show_bytes(fact.gib('checkpoint') or 0)}, "
            sizes += f"{show_bytes(fact.gib('ram') or 0)} of RAM was available. "
        return f"{sizes}Reading weights fills the page cache, which counts towards a container's limit."
    if stage in {"compile", "profile"}:
        return "Compilers that run in parallel take several GiB each; the GPU is not what ran out."
    return "Exit code 137 is signal 9: the OOM killer, a container's limit, or somebody's kill -9."


def _advice(case: Case, compilers: Fact | None, shared: bool, stage: str) -> tuple[str, ...]:
    compiling = stage == "compile" or (stage == "profile" and not shared)
    jobs = "MAX_JOBS=4" if compilers is not None or compiling else None
    share = less_share(case, 12 * GIB) if shared else None
    lower = (
        (share_flag(share) if share else "Lower --gpu-memory-utilization by 0.1: the rest of the memory is the host's.")
        if shared
        else None
    )
    limit = None if shared else "Raise the memory limit of the container (at least the size of the checkpoint)."
    if jobs:
        limit = None if shared else "Raise the memory limit of the container."
    cache = "Drop the page cache before the start: sync; echo 3 > /proc/sys/vm/drop_caches" if shared else None
    return first(
        (
            jobs if compilers else None,
            lower,
            jobs,
            cache,
            limit,
            None if shared else "dmesg shows whom the kernel killed, and its size.",
        )
    )
