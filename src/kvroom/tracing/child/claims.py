"""Packages that a GPU build of vLLM finds beside it: FlashInfer's attention and sampling, FlashMLA, CUDA's for Python.

Only what vLLM asks of them while it configures, builds and profiles is there. FlashInfer's kernels for experts
(``flashinfer.fused_moe``) are not claimed: what they allocate inside is not known.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Collection
from typing import Any

import torch

from .pretend import module
from .standins import Anything

_ATTENTION = ("decode", "prefill", "utils", "page", "cascade", "mla", "rope", "concat_ops")


def packages(without: Collection[str]) -> None:
    """Let vLLM find the packages of a GPU build, save those in ``without``."""
    sys.meta_path.append(_Required(without))
    if "flashinfer" not in without:
        _flashinfer()
    if "flashmla" not in without:
        module("vllm._flashmla_C")
        module("vllm._flashmla_extension_C")
        _stand_in("vllm.third_party.flashmla", "flash_mla_interface")


class _Required(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Packages that a GPU build requires, for modules of vLLM that import them: any part of them is there.

    Other packages look for them too, and go another way where they are missing.
    """

    def __init__(self, without: Collection[str]) -> None:
        """All but those in ``without``."""
        self.roots = frozenset({"cuda", "cutlass", "humming"}).difference(without)

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        """A module of one of the packages."""
        root = name.partition(".")[0]
        if root not in self.roots or not (root in sys.modules or _asked_by_vllm()):
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Anything:
        """An empty one."""
        return Anything(spec.name)

    def exec_module(self, module: Any) -> None:
        """Nothing is in it."""


def _asked_by_vllm() -> bool:
    frame = sys._getframe(2)
    while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return "/vllm/" in frame.f_code.co_filename


def _flashinfer() -> None:
    whole = _stand_in("flashinfer", *_ATTENTION)
    whole.__version__ = "1.0.0"  # type: ignore[attr-defined]  # vLLM asks for at least 0.2.3
    module("flashinfer_cubin")  # else vLLM looks for a compiler
    whole.sampling = module(  # type: ignore[attr-defined]
        "flashinfer.sampling",
        top_p_sampling_from_probs=_sampled,
        top_k_sampling_from_probs=_sampled,
        top_k_top_p_sampling_from_probs=_sampled,
        top_k_top_p_sampling_from_logits=_sampled_from_logits,
    )


def _stand_in(name: str, *parts: str) -> Anything:
    """A package of that ``name`` with ``parts``."""
    whole = Anything(name)
    for made in (whole, *(Anything(f"{name}.{part}") for part in parts)):
        made.__spec__ = importlib.machinery.ModuleSpec(made.__name__, None)
        sys.modules[made.__name__] = made
        if made is not whole:
            setattr(whole, made.__name__.rpartition(".")[2], made)
    return whole


def _sampled(probs: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return torch.empty(probs.shape[0], dtype=torch.int32, device=probs.device)


def _sampled_from_logits(logits: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Masked logits, their softmax, and a draw (flashinfer/sampling.py)."""
    masked = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    return _sampled(torch.softmax(masked, dim=-1))
