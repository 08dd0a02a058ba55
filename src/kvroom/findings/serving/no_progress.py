"""KVR316: requests that run, and no token comes out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.serving.common import load_of, said
from kvroom.logs.reading import State

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR316",
    "no-progress",
    Severity.WARNING,
    "Requests run, and for a minute or more no token is computed.",
    explanation(
        what="""
            Reports six or more lines of statistics in a row, up to the last one, with requests running and both
            throughputs at 0.
            """,
        why="""
            The engine waits for its workers: a kernel or a collective operation that does not come back, a rank
            that died, a kernel that is compiled on the first request, or one very long prompt.
            The server still answers `/health` and `/metrics`.
            """,
        example="`Running: 1 reqs, Waiting: 0 reqs` with 0.0 tokens/s for ten minutes, at 100% GPU use.",
        cure="""
            Look for errors of workers, at `nvidia-smi` and at `dmesg` (Xid).
            Then one thing at a time: `--enforce-eager`, `--disable-custom-all-reduce`, another attention backend.
            """,
        since="All releases.",
        references="`vllm/v1/metrics/loggers.py: LoggingStatLogger.log`",
    ),
)
_LEAST = 6
"""Lines, of which there is one every ten seconds (five before V1)."""


def find(case: Case) -> Iterator[Finding]:
    """The finding with how long nothing came."""
    row = load_of(case).frozen
    if row is None or row.count < _LEAST or case.reading.state is State.DIED:
        return
    advice = ["Look for errors of workers above, at nvidia-smi, and at dmesg (Xid)."]
    if not case.setting("enforce_eager"):
        advice.append("--enforce-eager (to see whether CUDA graphs or compilation are involved)")
    if (case.reading.gpus or 1) > 1:
        advice.append("--disable-custom-all-reduce (then NCCL_P2P_DISABLE=1)")
    running = row.first.running
    yield RULE.found(
        f"{running} request{'s run' if running > 1 else ' runs'}, and in {row.count} lines in a row no token came.",
        "The engine waits for a worker that hangs or compiles, or reads one very long prompt.",
        evidence=said(row.first),
        advice=advice,
    )
