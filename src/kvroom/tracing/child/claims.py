"""Packages that a GPU build of vLLM finds beside it: FlashInfer's attention and sampling, and FlashMLA.

Only what vLLM asks of them while it configures, builds and profiles is there. FlashInfer's kernels for experts
(``flashinfer.fused_moe``) are not claimed: what they allocate inside is not known.
"""

from __future__ import annotations

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
    if "flashinfer" not in without:
        _flashinfer()
    if "flashmla" not in without:
        module("vllm._flashmla_C")
        module("vllm._flashmla_extension_C")
        _stand_in("vllm.third_party.flashmla", "flash_mla_interface")


def _flashinfer() -> None:
    whole = _stand_in("flashinfer", *_ATTENTION)
    whole.__version__ = "1.0.0"  # type: ignore[attr-defined]  # vLLM asks for at least 0.2.3
    module("flashinfer_cubin")  # else vLLM looks for a compiler
    whole.sampling = module(  # type: ignore[attr-defined]
        "flashinfer.sampling",
        top_p_sampling_from_probs=_sampled,
        top_k_sampling_from_probs=_sampled,
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
