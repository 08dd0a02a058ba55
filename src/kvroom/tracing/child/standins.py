"""What only a CUDA build has, replaced by what gives shapes: compiled operators, attention kernels, torchvision."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import _OpNamespace

from . import bodies, moved
from .pretend import Description, module

NAMESPACES = frozenset(
    """_C _moe_C _C_cache_ops _C_cuda_utils _C_custom_ar _vllm_fa2_C _vllm_fa3_C _flashmla_C
    _flashmla_extension_C _qutlass_C _dsa_C""".split()
)
"""Where vLLM registers compiled operators."""
missing: set[str] = set()
"""Compiled operators that were asked for and did nothing."""


def _repacked(weight: torch.Tensor, rows: int, columns: int, bits: int) -> torch.Tensor:
    """The shape of Marlin's tiles of 16 rows."""
    return torch.empty(rows // 16, columns * 16 // (32 // bits), dtype=torch.int32, device=weight.device)


def _topk(scores: torch.Tensor, _groups: int, _topk_group: int, topk: int, *_: Any, **__: Any) -> tuple[Any, Any]:
    shape = (scores.shape[0], topk)
    return (
        torch.empty(shape, dtype=torch.float32, device=scores.device),
        torch.empty(shape, dtype=torch.int32, device=scores.device),
    )


def _marlin(a: torch.Tensor, _c: Any, weight: torch.Tensor, *rest: Any, **__: Any) -> torch.Tensor:
    columns = rest[-4] if len(rest) > 4 and isinstance(rest[-4], int) else weight.shape[1]
    return torch.empty(a.shape[0], columns, dtype=a.dtype, device=a.device)


_SHAPES: dict[str, Callable[..., Any]] = {
    "gptq_marlin_repack": lambda weight, _perm, rows, columns, bits, *_, **__: _repacked(weight, rows, columns, bits),
    "awq_marlin_repack": lambda weight, rows, columns, bits, *_, **__: _repacked(weight, rows, columns, bits),
    "marlin_gemm": _marlin,
    "gptq_marlin_gemm": _marlin,
    "get_cuda_view_from_cpu_tensor": lambda tensor: tensor,
    "grouped_topk": _topk,
}
"""Compiled operators that return something, by the shape of what they return."""


class _Operator:
    """A compiled operator that is not there."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = self.default = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.function


def _operator(namespace: str, name: str, capability: tuple[int, int]) -> _Operator:
    if name in _SHAPES:
        return _Operator(_SHAPES[name])
    if "support" in name:
        return _Operator(lambda *_, **__: capability[0] >= 9)

    def nothing(*_: Any, **__: Any) -> None:
        missing.add(f"{namespace}::{name}")

    return _Operator(nothing)


def operators(description: Description) -> None:
    """Let compiled operators that are missing do nothing, and remember the Python body of vLLM's own."""
    home, key = moved.home("direct_register_custom_op")
    register = getattr(home, key)

    def registering(op_name: str, op_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        bodies.registered[op_name] = op_func
        return register(op_name, op_func, *args, **kwargs)

    setattr(home, key, registering)
    real = _OpNamespace.__getattr__

    def found(self: Any, name: str) -> Any:
        caller = sys._getframe(1)
        importing = caller.f_code.co_name == "<module>"
        if self.name in NAMESPACES and not name.startswith("__") and not importing:
            return _operator(self.name, name, description.capability)
        try:
            return real(self, name)
        except AttributeError:
            probing = importing and caller.f_globals.get("__name__") == "vllm._custom_ops"
            if self.name in NAMESPACES and not name.startswith("__") and not probing:
                return _operator(self.name, name, description.capability)
            raise

    _OpNamespace.__getattr__ = found  # type: ignore[method-assign]


def compiled_modules() -> None:
    """Empty modules in place of the extensions of the CUDA wheel."""
    for name in ("_C", "_moe_C", "_C_stable_libtorch", "_moe_C_stable_libtorch"):
        module(f"vllm.{name}")


def flash_attention(description: Description) -> None:
    """FlashAttention as the GPU build has it: which versions run on the card, and outputs of the right shape."""
    major = description.capability[0]

    def attend(q: torch.Tensor, *args: Any, out: Any = None, return_softmax_lse: bool = False, **kwargs: Any) -> Any:
        value = kwargs.get("v", args[1] if len(args) > 1 else None)
        if out is None:
            width = value.shape[-1] if value is not None else q.shape[-1]
            out = torch.empty((*q.shape[:-1], width), dtype=q.dtype, device=q.device)
        if return_softmax_lse:
            return out, torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
        return out

    def supported(version: int, *_: Any, **__: Any) -> bool:
        return {2: major >= 8, 3: major == 9, 4: False}.get(version, False)

    content = {
        "FA2_AVAILABLE": True,
        "FA3_AVAILABLE": True,
        "flash_attn_varlen_func": attend,
        "flash_attn_with_kvcache": attend,
        "sparse_attn_func": attend,
        "compile_flash_attn_varlen_func_from_specs": lambda *_, **__: attend,
        "get_scheduler_metadata": lambda *_, **__: None,
        "is_fa_version_supported": supported,
        "fa_version_unsupported_reason": lambda version, *_, **__: None if supported(version) else "not on this card",
    }
    inner = module("vllm.vllm_flash_attn.flash_attn_interface", **content)
    outer = module("vllm.vllm_flash_attn", **content, flash_attn_interface=inner)
    outer.__path__ = []
    layers = module("vllm.vllm_flash_attn.layers")
    layers.__path__ = []
    module("vllm.vllm_flash_attn.layers.rotary", apply_rotary_emb=lambda x, *_, **__: x)


class Anything(types.ModuleType):
    """A module every attribute of which is a class that does nothing."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def value(_: type, key: str) -> str:
            if key.startswith("__"):
                raise AttributeError(key)
            return f"{name}.{key}"

        kind = type("Kind", (type,), {"__getattr__": value})
        made = kind(name, (), {"__init__": lambda self, *_, **__: None, "__getattr__": lambda self, _: None})
        setattr(self, name, made)
        return made


def torchvision() -> None:
    """A stand-in where torchvision is missing or was built for another torch; transformers is told that it is not."""
    try:
        import torchvision  # noqa: F401
    except Exception:
        import transformers.utils.import_utils as checks

        for name in ("is_torchvision_available", "is_torchvision_v2_available"):
            if hasattr(checks, name):
                getattr(checks, name)()  # remembered as absent before the stand-in exists
        parts = ("", ".io", ".ops", ".transforms", ".transforms.v2", ".transforms.functional")
        for part in (*parts, ".transforms.v2.functional"):
            made = Anything(f"torchvision{part}")
            made.__spec__ = importlib.machinery.ModuleSpec(made.__name__, None)
            sys.modules[made.__name__] = made
            parent, _, leaf = made.__name__.rpartition(".")
            if parent:
                setattr(sys.modules[parent], leaf, made)
