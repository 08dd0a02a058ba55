"""What only a CUDA build has, replaced by what gives shapes: compiled operators, attention kernels, torchvision."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch._ops import _OpNamespace

from . import bodies, moved, shapes
from .pretend import Description, module

missing: set[str] = set()
"""Compiled operators that were asked for and did nothing."""


class _Operator:
    """A compiled operator that is not there."""

    def __init__(self, namespace: str, name: str, capability: tuple[int, int]) -> None:
        self._name = f"{namespace}::{name}"
        self.function = shapes.of(namespace, name, capability) or self._nothing

    def _nothing(self, *_: Any, **__: Any) -> None:
        missing.add(self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return shapes.declared.get(f"{self._name}.{name}", self.function)


def operators(description: Description) -> None:
    """Let compiled operators that are missing do nothing, and remember the Python body of vLLM's own."""
    shapes.listen()
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
        ours = self.name in shapes.NAMESPACES and not name.startswith("__")
        if ours and not importing:
            return _Operator(self.name, name, description.capability)
        try:
            return real(self, name)
        except AttributeError:
            if ours:
                return _Operator(self.name, name, description.capability)
            raise

    _OpNamespace.__getattr__ = found  # type: ignore[method-assign]


def compiled_modules() -> None:
    """Empty modules in place of the extensions of the CUDA wheel."""
    for name in ("_C", "_moe_C", "_C_stable_libtorch", "_moe_C_stable_libtorch"):
        module(f"vllm.{name}")


def flash_attention(description: Description, without: Collection[str]) -> None:
    """FlashAttention as the GPU build has it: which versions run on the card, and outputs of the right shape.

    ``without`` may name ``fa3``, which is then missing.
    """
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
        return {2: major >= 8, 3: major == 9 and "fa3" not in without, 4: False}.get(version, False)

    content = {
        "FA2_AVAILABLE": True,
        "FA3_AVAILABLE": "fa3" not in without,
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


class Named(str):
    """The name of something that is not there; its attributes are names as well, and as a decorator it does nothing."""

    __slots__ = ()

    def __getattr__(self, key: str) -> Named:
        if key.startswith("__"):
            raise AttributeError(key)
        return Named(f"{self}.{key}")

    def __call__(self, *args: Any, **_: Any) -> Any:
        """What it decorates, or itself."""
        return args[0] if args and callable(args[0]) else self


class Anything(types.ModuleType):
    """A module every attribute of which is a class that does nothing."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def value(_: type, key: str) -> Named:
            return getattr(Named(name), key)

        kind = type("Kind", (type,), {"__getattr__": value, "__getitem__": lambda cls, _: cls})
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
