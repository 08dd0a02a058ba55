"""KVR273: worker processes that cannot be started from this program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR273",
    "processes-not-started",
    Severity.ERROR,
    "A program that calls vLLM touches CUDA first, or starts vLLM while it is still being imported.",
    explanation(
        what="""
            Reads PyTorch's refusal to use CUDA in a forked process and Python's refusal to start one while the
            main module is still being imported.
            """,
        why="""
            vLLM's engine and workers are processes of their own.
            A fork inherits a CUDA context that it cannot use; a spawned process imports the program again, and
            then everything outside of `if __name__ == "__main__":` runs once more.
            """,
        example="`torch.cuda.is_available()` with work on the GPU in a script before `LLM(...)`.",
        cure="""
            `VLLM_WORKER_MULTIPROC_METHOD=spawn`, and the script's code under `if __name__ == "__main__":`.
            """,
        since="All releases.",
        references="vLLM's troubleshooting guide: Python multiprocessing",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding for both refusals."""
    fact = cause(case, "err_fork")
    if fact is None:
        return
    guard = 'Put the code of the script under if __name__ == "__main__":'
    if "bootstrapping" in fact.text:
        title = "The script starts vLLM while it is being imported, and each new process imports it again."
        why = "Processes are spawned, so everything at the top of the script runs in each of them."
        advice = [guard]
    else:
        title = "The program used CUDA before vLLM started its processes by fork."
        why = "A forked process cannot use the CUDA context of its parent."
        advice = [
            "VLLM_WORKER_MULTIPROC_METHOD=spawn",
            guard,
            "Do not touch the GPU before vLLM starts.",
        ]
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice)
