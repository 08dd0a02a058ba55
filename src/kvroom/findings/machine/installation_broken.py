"""KVR270: libraries that do not fit together, or are missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause, short

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR270",
    "installation-broken",
    Severity.ERROR,
    "A library is missing, or was built for another version of its neighbours.",
    explanation(
        what="""
            Reads the errors of Python and of the loader: a module or a name that is not there, a shared library
            that cannot be opened, a symbol that it lacks.
            """,
        why="""
            A release of vLLM is compiled against one PyTorch with one CUDA, and asks for a range of transformers.
            Installing another package afterwards replaces them without asking; `undefined symbol` is then a
            PyTorch of another version, `libcudart.so.12` a CUDA of another one.
            Some models and connectors need packages that vLLM does not bring.
            """,
        example="`pip install -U torch` in the environment of vLLM: `vllm/_C.abi3.so: undefined symbol`.",
        cure="""
            A fresh environment into which only vLLM is installed, or its image.
            For a package that is missing: install it, in the version that vLLM's requirements name.
            """,
        since="All releases.",
        references="`vllm/requirements`, the installation guide",
    ),
)
_FRESH = "Install vLLM alone into a fresh environment (uv venv, then uv pip install vllm), or use its image."
_PARTS = ("vllm._", "_C", "libcudart", "libcublas", "libnvrtc", "libtorch", "libc10", "torch")


def find(case: Case) -> Iterator[Finding]:
    """The finding with the library."""
    fact = cause(case, "err_library")
    if fact is None:
        return
    library = fact.values.get("library", "a library").strip("'\"")
    title, why, advice = _explained(fact, library)
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice)


def _explained(fact: Fact, library: str) -> tuple[str, str, list[str]]:
    name = short(library.rpartition("/")[2])
    if "cannot open shared object" in fact.text:
        if name.startswith("libcuda.so"):
            return (
                "The library of the GPU driver, libcuda.so, is not there.",
                "It comes with the driver and is passed into containers by the NVIDIA Container Toolkit.",
                [
                    "Run nvidia-smi in the same place.",
                    "Docker: --gpus all; Kubernetes: resources.limits nvidia.com/gpu",
                ],
            )
        return (
            f"The library {name} is not there.",
            "A package was built for another version of CUDA than the installed one.",
            [_FRESH, "Take the wheel of vLLM for the CUDA that is installed."],
        )
    if "undefined symbol" in fact.text or "not found (required" in fact.text or "DLL load failed" in fact.text:
        return (
            f"{name} does not fit the libraries around it.",
            "It was compiled for another version, mostly of PyTorch.",
            [_FRESH, "pip check lists what does not fit."],
        )
    if "No module named" in fact.text:
        if library.startswith(_PARTS):
            why = "vLLM's compiled part is missing: its source folder is in the way, or the build failed."
            return f"The module {name} is missing.", why, [_FRESH, "Do not start in a folder that holds vLLM's source."]
        package = name.split(".")[0].replace("_", "-")
        why = "The model, the connector or the option needs a package that is not installed."
        return f"The package {package} is missing.", why, [f"pip install {package}"]
    if "cannot import name" in fact.text:
        symbol = fact.values.get("symbol", "a name")
        return (
            f"{name} has no {short(symbol)}: it is newer or older than this vLLM expects.",
            "Each release of vLLM fits a range of versions of transformers and other packages.",
            [_FRESH, f"Or install {name.split('.')[0]} in the version that vLLM's requirements name."],
        )
    return (
        f"A package is missing: {short(fact.text.partition('Error: ')[2] or fact.text)}",
        "The model or the option needs it, and vLLM does not bring it.",
        ["Install what the message names."],
    )
