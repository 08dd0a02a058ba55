"""vLLM's parameter classes on tensors without data: torch would make plain tensors of them and lose their loaders."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor


@cache
def _both(kind: type) -> type:
    """A class that is a FakeTensor and a parameter of that ``kind``."""
    return type(kind)(kind.__name__, (kind, FakeTensor), {"__module__": kind.__module__})


def keep_their_kind() -> None:
    """Let a parameter that is made of a FakeTensor be an instance of its own class as well."""
    from vllm.model_executor.parameter import BasevLLMParameter

    plain = BasevLLMParameter.__new__

    def made(cls: type, data: Any = None, **kwargs: Any) -> Any:
        out = plain(cls, data, **kwargs)
        if isinstance(out, FakeTensor) and not isinstance(out, cls):
            out.__class__ = _both(cls)
        return out

    BasevLLMParameter.__new__ = made
    _keep_it_from_the_meta_device()


def _keep_it_from_the_meta_device() -> None:
    """The same for weights that are quantised while they load: they are made on the meta device, then on the card."""
    try:
        from vllm.model_executor.model_loader import dummy_loader
        from vllm.model_executor.model_loader.reload import meta as home
    except ImportError:
        return  # releases before 0.16

    def on_the_card(meta: torch.Tensor) -> torch.Tensor:
        out: Any = torch.empty_strided(tuple(meta.size()), tuple(meta.stride()), dtype=meta.dtype, device="cuda")
        if isinstance(meta, torch.nn.Parameter):
            out = torch.nn.Parameter(out, requires_grad=False)
        if type(meta) not in (torch.Tensor, torch.nn.Parameter):
            out.__class__ = _both(type(meta))
        out.__dict__ = {**meta.__dict__, **out.__dict__}
        return out

    for module in (home, dummy_loader):
        if hasattr(module, "materialize_meta_tensor"):
            module.materialize_meta_tensor = on_the_card
