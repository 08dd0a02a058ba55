"""KVR214: the log ends without a cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.startup import (
    host_memory_exhausted,
    no_cache_blocks,
    one_request_does_not_fit,
    out_of_memory_allocating_kv,
    out_of_memory_in_capture,
)
from kvroom.findings.startup.common import first, lower_share, unified
from kvroom.logs.reading import State

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR214",
    "stopped-without-an-error",
    Severity.ERROR,
    "The start stopped, and no line says why: only wrappers that point elsewhere, or nothing at all.",
    explanation(
        what="""
            Reports a start that did not come up although no line names a cause, with the stage that was under
            way and what usually ends it there.
            Where the log may simply be cut, it is a warning at the stages in which processes are killed
            silently, and else a note.
            """,
        why="""
            "Engine core initialization failed" and "WorkerProc failed to start" are wrappers: the cause is in
            the lines of EngineCore or of a worker before them.
            A process that the kernel kills prints nothing.
            The stage narrows it down: host memory while weights load or kernels compile, /dev/shm or a peer
            while GPUs connect, GPU memory outside the budget after the KV cache.
            A progress bar at 100 % without "Model loading took" means that repacking the weights failed.
            """,
        example="""
            The last line is "Loading safetensors checkpoint shards: 40%", and the container restarts: exit
            code 137, the container's memory limit.
            """,
        cure="""
            Get the whole log (from the first line of vLLM to the last), the exit code and `dmesg`.
            """,
        since="All releases.",
        references="`vllm/v1/engine/utils.py: wait_for_engine_startup`",
    ),
)
_STAGES = {
    "config": ("the reading of arguments", "a refused argument, whose text is printed without vLLM's prefix"),
    "model_resolve": ("the search for the model", "no access to the hub or to the files"),
    "engine_boot": ("the start of the engine process", "an import that fails or a GPU that is not visible"),
    "distributed_init": (
        "the connection of the GPUs",
        "too little /dev/shm, or a peer that does not answer",
    ),
    "device_memory_check": ("the check of free memory", "other programs on the card"),
    "weight_load": (
        "the loading of the weights",
        "host memory (the page cache counts towards a container's limit), or GPU memory smaller than the weights",
    ),
    "compile": ("compilation", "host memory, taken by compilers that run in parallel"),
    "profile": ("the profile run", "GPU memory for the largest batch, or host memory for parallel compilers"),
    "kv_sizing": ("the sizing of the KV cache", "a KV cache that is too small for one request"),
    "kv_alloc": ("the allocation of the KV cache", "GPU memory that another program took meanwhile"),
    "graph_capture": ("the capture of CUDA graphs", "GPU memory outside the budget"),
    "sampler_warmup": ("the warm-up", "GPU memory outside the budget"),
}
_ADVICE = {
    "distributed_init": "Give the container --shm-size 16g or --ipc=host; NCCL_DEBUG=INFO shows the rest.",
    "weight_load": "Raise the memory limit of the container; dmesg shows whether the kernel killed it.",
    "compile": "MAX_JOBS=4",
    "profile": "Lower --max-num-seqs and --max-num-batched-tokens; set MAX_JOBS=4 if the host ran out of memory.",
    "kv_sizing": "Lower --max-model-len.",
}
_BEGINNINGS = ("banner", "banner_server", "banner_logo", "args_non_default", "args_namespace", "engine_v1", "engine_v0")
_SYMPTOMS = (
    "err_engine_init",
    "err_engine_start",
    "err_engine_hit",
    "err_engine_process",
    "err_worker_start",
    "err_worker_init",
    "err_ready_timeout",
    "worker_died",
)
_SILENT = frozenset({"distributed_init", "weight_load", "compile", "profile", "graph_capture"})
"""Stages that take long, and in which the kernel or a peer ends a process that then prints nothing."""
_OTHERS = (
    no_cache_blocks,
    one_request_does_not_fit,
    out_of_memory_allocating_kv,
    out_of_memory_in_capture,
    host_memory_exhausted,
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the last stage, unless another one explains the end."""
    reading = case.reading
    if reading.error is not None or reading.state not in {State.FAILED, State.UNFINISHED} or reading.load.count:
        return
    if any(True for other in _OTHERS for _ in other.find(case)):
        return
    failed = reading.state is State.FAILED
    known = _STAGES.get(reading.stage)
    ticket = any(fact.id.startswith("told_") for fact in reading.facts)
    if not failed and (known is None or ticket):
        return
    what, usual = known or ("the start", "not to be told from these lines")
    if _repacking(case):
        what, usual = "the repacking of weights after the last shard", "GPU or host memory for two copies of a layer"
    elif unified(case) and reading.stage in {"weight_load", "compile", "profile", "kv_alloc", "graph_capture"}:
        usual = "memory of the host, which the GPU shares here"
    elif failed and reading.facts.first("ray_guesses"):
        usual = "host memory: Ray only sees that the process of a worker is gone"
    ended = reading.facts.first("sigterm")
    if ended is not None and not failed:
        yield RULE.found(
            f"The start was ended from outside during {what}, before it was done.",
            "SIGTERM came: from a startup or liveness probe of Kubernetes that gave up, a time limit, or somebody. vLLM"
            " itself reports no error.",
            evidence=(shown(ended),),
            advice=(
                "Give the start more time: a startupProbe with a larger failureThreshold (load times go by minutes).",
                "kubectl describe pod shows who ended it and why; VLLM_TRACE_FUNCTION and slow disks make it long.",
            ),
            severity=Severity.ERROR,
        )
        return
    begins = reading.facts.first(*_BEGINNINGS) is not None
    severity = Severity.ERROR if failed else Severity.WARNING if begins and reading.stage in _SILENT else Severity.NOTE
    cut = f"The log ends during {what}: the process was killed there, or the log is cut."
    title = f"The start failed during {what}, and no line says why." if failed else cut
    last = reading.facts[-1] if len(reading.facts) else None
    symptom = reading.facts.first(*_SYMPTOMS) if failed else None
    evidence = [shown(symptom)] if symptom else [shown(last)] if last else [Evidence(reading.ending)]
    yield RULE.found(
        title,
        f"What usually ends it there: {usual}.",
        evidence=evidence,
        advice=first(
            (
                "Read the lines of EngineCore and of the workers before the wrapper: they name the cause."
                if symptom
                else "Get the rest of the log, and the exit code (137 is the kernel's OOM killer).",
                None if severity is Severity.NOTE else _ADVICE.get(reading.stage) or lower_share(case),
            )
        ),
        severity=severity,
    )


def _repacking(case: Case) -> bool:
    """Whether all shards are read and the line that closes the loading is missing."""
    shards = case.reading.facts.last("shards")
    if shards is None or case.reading.stage != "weight_load" or case.reading.facts.first("weights"):
        return False
    done = shards.whole("done")
    return bool(done and done == shards.whole("total"))
