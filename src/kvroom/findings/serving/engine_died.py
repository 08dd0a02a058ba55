"""KVR309: the engine died, and the log does not say of what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.logs.messages import WEAK
from kvroom.logs.reading import State
from kvroom.redaction import clean

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR309",
    "engine-died",
    Severity.ERROR,
    "The engine process died while serving; what is logged follows from that.",
    explanation(
        what="""
            Recognises the death of an engine that had been ready, where the log has no error with numbers:
            `EngineDeadError`, `EngineCore encountered a fatal error`, `died unexpectedly`, V0's `Background loop`.
            """,
        why="""
            The API server only sees that the engine is gone and says so for every request.
            The cause is in the engine's or a worker's own lines, further up, or outside of the log: a process that
            is killed leaves no traceback.
            Exit code -9 is SIGKILL, mostly the kernel or the container short of host memory; -11 is a
            segmentation fault in native code; -7 a bus error, mostly a full /dev/shm.
            """,
        example="""
            `Worker proc VllmWorker-1 died unexpectedly (exit code: -9)`: host memory ran out.
            """,
        cure="""
            Read the first traceback before these lines, not the last.
            Without one look at `dmesg` and the container's memory limit.
            The same line after an orderly shutdown means nothing.
            """,
        since="All releases; the names of the messages changed with V1.",
        references="`vllm/v1/engine/core.py`, `vllm/v1/engine/exceptions.py`, `vllm/v1/executor/multiproc_executor.py`",
    ),
)
_SIGNS = ("worker_died", "engine_killed", "engine_stalled", "engine_fatal", "engine_dead", "engine_dead_v0")
_SIGNALS = {
    -9: ("SIGKILL", "Host memory ran out, or somebody killed it: see dmesg and the container's memory limit."),
    -11: ("a segmentation fault", "Native code crashed: another attention backend or driver may avoid it."),
    -7: ("a bus error", "Shared memory was full: --shm-size 16g, or --ipc host, for the container."),
}
_LONGEST = 200
_HUNG = re.compile(r"RPC call to (\w{1,60}) timed out")


def find(case: Case) -> Iterator[Finding]:
    """The finding with the exit code or the exception, where the log has either."""
    reading = case.reading
    if reading.state is not State.DIED or (reading.error is not None and reading.error.id not in WEAK):
        return
    signs = _signs(case)
    if not signs:
        return
    ended = next((fact for fact in signs if fact.whole("code") in _SIGNALS), None)
    if ended is not None:
        name, advice = _SIGNALS[ended.whole("code") or 0]
        yield RULE.found(
            f"A worker process ended with {name} (exit code {ended.values['code']}) while serving.",
            "A process that is killed leaves no traceback; the other messages follow from its end.",
            evidence=(shown(ended),),
            advice=(advice,),
        )
        return
    if reading.error is not None:
        text = clean(reading.error.text)[:_LONGEST]
        hung = _HUNG.search(text)
        if hung is not None:
            yield RULE.found(
                f"A worker did not answer in time ({hung[1]}), so the engine gave up.",
                "The worker hangs or is very slow: a kernel or a collective operation that does not come back, a rank"
                " that died, a kernel compiled in the middle of serving, or a host that swaps. Memory is seldom short.",
                evidence=(shown(reading.error), shown(signs[0])),
                advice=(
                    "Look for an earlier error of a worker, and at nvidia-smi and dmesg (Xid) while it hangs.",
                    "--enforce-eager (to see whether CUDA graphs or compilation are involved)",
                    "--disable-custom-all-reduce"
                    if (reading.gpus or 0) > 1
                    else "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=900 (if it is only slow)",
                ),
            )
            return
        yield RULE.found(
            f"The engine died while serving: {text}",
            "This is the first error of the log that is no consequence of another one.",
            evidence=(shown(reading.error), shown(signs[0])),
        )
        return
    yield RULE.found(
        "The engine died while serving, and the log does not say of what.",
        "The lines that are left follow from its end: the cause stands further up in the lines of the engine or of"
        " a worker, or the process was killed from outside.",
        evidence=[shown(fact) for fact in signs[:2]],
        advice=(
            "Look for the first traceback before these lines.",
            "Without one: dmesg and the container's memory limit (host memory).",
        ),
    )


def _signs(case: Case) -> list[Fact]:
    """The lines that tell of the death, the most telling first; those of an orderly shutdown are none."""
    facts = case.reading.facts
    shutdown = facts.first("shutdown", "sigterm")
    found = [fact for fact in facts.all(*_SIGNS) if shutdown is None or fact.line < shutdown.line]
    return sorted(found, key=lambda fact: _SIGNS.index(fact.id))
