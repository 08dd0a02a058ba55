"""KVR268: a crash inside a kernel or a native library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import backend_option, cause

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR268",
    "kernel-or-driver-fault",
    Severity.ERROR,
    "Native code crashed: a GPU kernel left its memory, or a library fell over.",
    explanation(
        what="""
            Reads segmentation faults, CUDA's `illegal memory access`, `device-side assert` and the like, errors of
            cuBLAS, and cards that fail.
            """,
        why="""
            Neither is a lack of memory.
            An illegal access is a bug of a kernel, or sizes that it was not made for; it is reported by a later
            call, so that the traceback names the wrong place.
            A segmentation fault comes from a native library: mixed CUDA versions, a driver, a broken install.
            """,
        example="A quantised MoE kernel that fails on one card with one batch size.",
        cure="""
            Change one thing at a time: `--enforce-eager` (no CUDA graphs), another attention backend, no
            quantised KV cache, another release.
            `CUDA_LAUNCH_BLOCKING=1` makes the traceback name the kernel, for a report to vLLM.
            """,
        since="All releases.",
        references="CUDA: errors are asynchronous; `vllm` issues",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the kind of crash."""
    fact = cause(case, "illegal_access", "segfault", "kernel_fault", "gpu_fault")
    if fact is None:
        return
    stage = case.reading.stage
    where = "" if stage == "unknown" else f" (stage: {stage.replace('_', ' ')})"
    advice = []
    if not case.setting("enforce_eager"):
        advice.append("--enforce-eager (to see whether CUDA graphs are involved)")
    if fact.id == "gpu_fault":
        yield RULE.found(
            f"A GPU failed{where}.",
            "The card or its connection is at fault, not vLLM and not its settings.",
            evidence=(shown(fact),),
            advice=(
                "Look for Xid and NVRM in dmesg, and at nvidia-smi -q (ECC, retired pages).",
                "Restart the machine; leave the card out (CUDA_VISIBLE_DEVICES) until it is checked.",
            ),
        )
        return
    if fact.id in {"illegal_access", "kernel_fault"}:
        if str(case.setting("kv_cache_dtype") or "auto") not in {"auto", "bfloat16", "float16"}:
            advice.append("--kv-cache-dtype auto (to see whether the quantised cache is involved)")
        advice += [f"Another {backend_option(case)}", "CUDA_LAUNCH_BLOCKING=1 (the traceback then names the kernel)"]
        title = f"A GPU kernel read or wrote outside its memory{where}."
        if fact.id == "kernel_fault":
            title = f"A GPU kernel failed{where}."
        why = "It is not a lack of memory; CUDA reports it late, so the traceback may name another place."
    else:
        title = f"A process died of a segmentation fault{where}."
        why = "Native code crashed, so that no Python error tells why."
        advice += [
            "PYTHONFAULTHANDLER=1 (the crash then prints where Python was)",
            "Install vLLM into a fresh environment or use its image: mixed CUDA libraries crash like this.",
        ]
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice)
