"""Triton as a GPU build has it, with kernels that are never launched: the real package, or a stand-in for it."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

from .pretend import Description, module
from .standins import Anything

_PARTS = (
    "language",
    "language.core",
    "language.extra",
    "language.extra.cuda",
    "runtime",
    "runtime.jit",
    "runtime.driver",
)
_MORE = (
    "runtime.autotuner",
    "runtime.cache",
    "compiler",
    "compiler.compiler",
    "testing",
    "tools",
    "tools.tensor_descriptor",
)


def triton(description: Description) -> None:
    """Let nothing that is written in Triton run."""
    if importlib.util.find_spec("triton") is None:
        _stand_in(description)
    else:
        _real(description)


def _real(description: Description) -> None:
    """The real package on a driver that launches nothing."""
    import triton as real
    from triton.backends import backends
    from triton.runtime import autotuner, jit

    if "nvidia" in backends:
        backends["nvidia"].driver.is_active = staticmethod(lambda: True)
    for kind in (jit.JITFunction, autotuner.Autotuner, autotuner.Heuristics):
        kind.run = lambda self, *_, **__: None
    real.runtime.driver.set_active(_driver(description))


class _Kernel:
    """A kernel that does nothing on any grid."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn = function
        self.__name__ = getattr(function, "__name__", "kernel")
        self.arg_names: list[str] = []

    def __getitem__(self, _grid: object) -> Callable[..., None]:
        return lambda *_, **__: None

    def __call__(self, *_: Any, **__: Any) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _kernel(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    return _kernel if function is None else _Kernel(function)


def _unchanged(*_: Any, **__: Any) -> Callable[[Any], Any]:
    return lambda kernel: kernel


def _stand_in(description: Description) -> None:
    """A package of that name with its decorators and the two functions that are called outside of kernels."""

    class Config:
        def __init__(self, kwargs: Any = None, **more: Any) -> None:
            self.kwargs = kwargs or {}
            self.__dict__.update(more)

    whole = Anything("triton")
    made = module(
        "triton",
        __version__="3.5.0",
        jit=_kernel,
        autotune=_unchanged,
        heuristics=_unchanged,
        Config=Config,
        cdiv=lambda a, b: -(-a // b),
        next_power_of_2=lambda n: 1 << max(int(n) - 1, 0).bit_length(),
        set_allocator=lambda *_: None,
        __getattr__=lambda name: getattr(whole, name),
    )
    made.__path__ = []
    active = types.SimpleNamespace(driver=types.SimpleNamespace(is_active=lambda: True))
    backends = module("triton.backends", backends={"nvidia": active})
    backends.__path__ = []
    module("triton.backends.compiler", GPUTarget=lambda *parts: parts)
    made.backends = backends  # type: ignore[attr-defined]
    for part in (*_PARTS, *_MORE):
        name = f"triton.{part}"
        inner = Anything(name)
        inner.__spec__ = made.__spec__
        sys.modules[name] = inner
        parent, _, leaf = name.rpartition(".")
        setattr(sys.modules[parent], leaf, inner)
    sys.modules["triton.runtime"].driver = types.SimpleNamespace(active=_driver(description))  # type: ignore[attr-defined]


def _driver(description: Description) -> Any:
    number = description.capability[0] * 10 + description.capability[1]

    class Driver:
        def get_current_target(self) -> Any:
            from triton.backends.compiler import GPUTarget

            return GPUTarget("cuda", number, 32)

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: 0

    return Driver()
