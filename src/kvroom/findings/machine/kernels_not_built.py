"""KVR271: kernels that are compiled at the start, and cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause, chosen_backend

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR271",
    "kernels-not-built",
    Severity.ERROR,
    "Kernels are compiled while vLLM starts, and the compiler is missing, too old, or refuses.",
    explanation(
        what="""
            Reads the errors of Triton, torch.compile, FlashInfer and `nvcc` about a compiler or header that is
            missing, a card that the compiler does not know, and a kernel that asks for more shared memory than
            a multiprocessor has.
            """,
        why="""
            Triton and torch.compile need a C compiler and Python's headers; FlashInfer, DeepGEMM and others need
            `nvcc` and `ninja`.
            Slim images and plain virtual machines have none of them.
            A compiler that is older than the card does not know its name (`sm_121a`, `compute_120a`).
            Consumer cards have about 100 KiB of shared memory, data-centre cards up to 228 KiB.
            """,
        example="`Failed to find C compiler. Please specify via CC environment variable.` in a slim image.",
        cure="""
            Install the compiler (`build-essential`, `python3-dev`, the CUDA toolkit), or use vLLM's image.
            """,
        since="All releases; kernels compiled at the start mostly since 0.7.",
        references="Triton's `runtime/build.py`, FlashInfer's JIT",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with what is missing."""
    fact = cause(case, "err_compiler", "err_gpu_name", "err_kernel_resources")
    if fact is None:
        return
    image = "Use vLLM's image, which has the compilers."
    if fact.id == "err_gpu_name":
        target = fact.values["target"]
        title = f"The compiler is older than the card: it does not know {target}."
        why = "Triton brings a ptxas of its own; FlashInfer and others take nvcc of the installed CUDA toolkit."
        advice = [
            "TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas (of a CUDA toolkit that is new enough for the card)",
            "Install a newer CUDA toolkit, or take a newer vLLM or its image for this card.",
        ]
    elif fact.id == "err_kernel_resources":
        needed, limit = (fact.whole(name) or 0 for name in ("needed", "limit"))
        title = f"A Triton kernel asks for {needed:,} B of shared memory, and the card has {limit:,} B."
        why = "It is the small memory of each multiprocessor, not the GPU's memory: the kernel was tuned for others."
        advice = [
            "Take a newer vLLM: it is a bug of the kernel for this card.",
            f"Another attention backend: {chosen_backend(case, 'FLASH_ATTN')}",
        ]
    elif "Python.h" in fact.text:
        title = "Python's headers are missing: Triton cannot compile its launcher."
        why = "It compiles a small C file for every kernel."
        advice = ["apt-get install python3-dev (of the Python that runs vLLM)", image]
    elif any(word in fact.text for word in ("nvcc", "ninja", "Ninja", "extension")):
        title = "A kernel is compiled at the start, and nvcc or ninja is missing or failed."
        why = "FlashInfer, DeepGEMM and others compile for the card when they are first used."
        advice = ["Install the CUDA toolkit (nvcc) and ninja, and set CUDA_HOME.", image]
    else:
        title = "No C compiler is installed, and Triton needs one."
        why = "It compiles a small C file for every kernel."
        advice = ["apt-get install build-essential (or set CC to a compiler)", image]
    if fact.id == "err_compiler" and not case.setting("enforce_eager"):
        advice.append("--enforce-eager (avoids torch.compile, not every kernel; slower)")
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice)
