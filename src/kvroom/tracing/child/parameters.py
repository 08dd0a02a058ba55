"""vLLM's parameter classes on tensors without data: torch would make plain tensors of them and lose their loaders."""

from __future__ import annotations

from functools import cache
from typing import Any

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
