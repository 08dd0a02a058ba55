"""The GPUs of this machine, asked through NVML: names, totals, what is free and who holds the rest.

This is an edge module: it loads ``pynvml`` (nvidia-ml-py) when first used and reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

from kvroom.devices.catalogue import find_by_driver_name
from kvroom.devices.device import Device, GpuProcess, Machine
from kvroom.devices.inventory import Gpu, Inventory
from kvroom.devices.totals import RESERVE_MIB
from kvroom.errors import DeviceError
from kvroom.units import MIB

_T = TypeVar("_T")
_CURE = "Name the GPU that the launch will have: --gpu 'RTX 4090' or --gpu 2xH100."


class Probe(Protocol):
    """Anything that can say what GPUs a launch would find."""

    def machine(self) -> Machine:
        """The visible GPUs, or DeviceError when there is none."""


class _Seen(NamedTuple):
    device: Device
    free_bytes: int | None
    processes: tuple[GpuProcess, ...]


def local_machine() -> Machine:
    """The NVIDIA GPUs here; raises DeviceError when there are none or none may be seen."""
    return NvmlProbe().machine()


class NvmlProbe:
    """Asks NVML. ``nvml`` is the ``pynvml`` module or anything with its functions; ``env`` the environment.

    Several GPUs become one ``Machine``: vLLM sizes every rank alike, so the one with the smallest total
    stands for all, with the least free memory of any.
    """

    def __init__(self, nvml: Any = None, env: Mapping[str, str] | None = None) -> None:
        self._nvml = nvml
        self._env = os.environ if env is None else env

    def machine(self) -> Machine:
        """The GPUs that CUDA_VISIBLE_DEVICES leaves visible."""
        with self._session() as nvml:
            seen = [_look(nvml, handle) for handle in self._handles(nvml)]
        if not seen:
            raise DeviceError("There is no NVIDIA GPU here.", _CURE)
        smallest = min(seen, key=lambda gpu: gpu.device.total_bytes)
        free = [gpu.free_bytes for gpu in seen if gpu.free_bytes is not None]
        processes = {process.pid: process for gpu in seen for process in gpu.processes}
        return Machine(
            smallest.device,
            len(seen),
            min(free) if free else None,
            tuple(processes[pid] for pid in sorted(processes)),
        )

    def inventory(self) -> Inventory:
        """Every GPU, hidden or not; one that cannot be read is listed with the reason."""
        with self._session() as nvml:
            gpus = tuple(_describe(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
            driver = _ask(nvml, lambda: _text(nvml.nvmlSystemGetDriverVersion()))
            cuda = _ask(nvml, lambda: int(nvml.nvmlSystemGetCudaDriverVersion_v2()))
        if not gpus:
            raise DeviceError("There is no NVIDIA GPU here.", _CURE)
        return Inventory("NVIDIA", gpus, driver, f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None)

    @contextmanager
    def _session(self) -> Iterator[Any]:
        """NVML, open; its errors become a DeviceError."""
        nvml = self._nvml if self._nvml is not None else _load()
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise DeviceError(f"There is no NVIDIA GPU here ({error}).", _CURE) from error
        try:
            yield nvml
        except nvml.NVMLError as error:
            raise DeviceError(f"NVML cannot read the GPUs here: {error}.", _CURE) from error
        finally:
            nvml.nvmlShutdown()

    def _handles(self, nvml: Any) -> list[Any]:
        visible = self._env.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        handles = []
        for item in (part.strip() for part in visible.split(",")):
            if item.isdecimal() and int(item) < nvml.nvmlDeviceGetCount():
                handles.append(nvml.nvmlDeviceGetHandleByIndex(int(item)))
            elif item.startswith(("GPU-", "MIG-")):
                handles.append(nvml.nvmlDeviceGetHandleByUUID(item))
            else:
                break  # CUDA ignores what follows the first entry that is not a device.
        if not handles:
            raise DeviceError(f"CUDA_VISIBLE_DEVICES='{visible}' hides every GPU here.", _CURE)
        return handles


def _load() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise DeviceError("The GPUs here cannot be read: nvidia-ml-py is not installed.", _CURE) from error
    return pynvml


def _look(nvml: Any, handle: Any) -> _Seen:
    name = _text(nvml.nvmlDeviceGetName(handle))
    known = find_by_driver_name(name)
    total, free = _memory(nvml, handle, known)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    device = Device(
        name=name,
        vendor="NVIDIA",
        compute_capability=(int(major), int(minor)),
        total_bytes=total,
        total_low=total,
        total_high=total,
        basis="measured" if free is not None else "published",
        unified=known.unified if known else False,
        id=known.id if known else "",
    )
    return _Seen(device, free, _processes(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)))


def _memory(nvml: Any, handle: Any, known: Device | None) -> tuple[int, int | None]:
    """Total as torch would report it, and free, in bytes.

    NVML's total includes what the driver keeps for itself and torch's does not. NVML's second memory
    structure names that reserve; without it the catalogue's total of the card is taken when it is
    plausible, else the usual reserve is subtracted. A part with unified memory has no total in NVML.
    """
    try:
        total, free, reserved = _reported(nvml, handle)
    except nvml.NVMLError:
        if known is None:
            raise
        return known.total_bytes, None
    if reserved is not None:
        return total - reserved, free
    least, usual, most = (mib * MIB for mib in RESERVE_MIB)
    if known is not None and least // 2 <= total - known.total_bytes <= most * 2:
        return known.total_bytes, free
    return total - usual, free


def _reported(nvml: Any, handle: Any) -> tuple[int, int, int | None]:
    """NVML's total, free and reserved bytes; no reserve from an older driver or binding."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
        return int(memory.total), int(memory.free), int(memory.reserved)
    except (nvml.NVMLError, AttributeError, TypeError):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), int(memory.free), None


def _describe(nvml: Any, index: int) -> Gpu:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = _text(nvml.nvmlDeviceGetName(handle))
    except nvml.NVMLError as error:
        return Gpu(index, "", problem=str(error))
    total, free, reserved = _ask(nvml, lambda: _reported(nvml, handle)) or (None, None, None)
    capability = _ask(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    mig = _ask(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle))
    drawing = _processes(nvml, lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle))
    computing = _processes(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    processes = {process.pid: process for process in (*drawing, *computing)}
    return Gpu(
        index=index,
        name=name,
        total_bytes=total,
        used_bytes=None if total is None or free is None else max(total - free - (reserved or 0), 0),
        free_bytes=free,
        reserved_bytes=reserved,
        architecture=f"{capability[0]}.{capability[1]}" if capability else None,
        mig=bool(mig[0]) if mig else None,
        processes=tuple(processes[pid] for pid in sorted(processes)),
    )


def _ask(nvml: Any, question: Callable[[], _T]) -> _T | None:
    """The answer to one question, None where this driver, binding or card has none."""
    try:
        return question()
    except (nvml.NVMLError, AttributeError, UnicodeError):
        return None


def _processes(nvml: Any, running: Callable[[], Any]) -> tuple[GpuProcess, ...]:
    """Who runs on the GPU; empty where the driver does not say (containers, Windows)."""
    found = _ask(nvml, running) or ()
    return tuple(GpuProcess(int(p.pid), _process_name(nvml, p.pid), p.usedGpuMemory) for p in found)


def _process_name(nvml: Any, pid: int) -> str:
    return _ask(nvml, lambda: _text(nvml.nvmlSystemGetProcessName(pid))) or ""


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
