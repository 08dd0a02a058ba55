"""The GPUs of this machine, asked through NVML: names, totals, what is free and who holds the rest.

This is an edge module: it loads ``pynvml`` (nvidia-ml-py) when first used and reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from kvroom.devices.catalogue import find_by_driver_name
from kvroom.devices.device import Device, GpuProcess, Machine
from kvroom.devices.totals import RESERVE_MIB
from kvroom.errors import DeviceError
from kvroom.units import MIB

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
        nvml = self._nvml if self._nvml is not None else _load()
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise DeviceError(f"There is no NVIDIA GPU here ({error}).", _CURE) from error
        try:
            seen = [_look(nvml, handle) for handle in self._handles(nvml)]
        except nvml.NVMLError as error:
            raise DeviceError(f"NVML cannot read the GPUs here: {error}.", _CURE) from error
        finally:
            nvml.nvmlShutdown()
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
    return _Seen(device, free, _processes(nvml, handle))


def _memory(nvml: Any, handle: Any, known: Device | None) -> tuple[int, int | None]:
    """Total as torch would report it, and free, in bytes.

    NVML's total includes what the driver keeps for itself and torch's does not. NVML's second memory
    structure names that reserve; without it the catalogue's total of the card is taken when it is
    plausible, else the usual reserve is subtracted. A part with unified memory has no total in NVML.
    """
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
        return int(memory.total - memory.reserved), int(memory.free)
    except (nvml.NVMLError, AttributeError, TypeError):
        pass  # An older driver or binding: the first structure has no reserve.
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError:
        if known is None:
            raise
        return known.total_bytes, None
    least, usual, most = (mib * MIB for mib in RESERVE_MIB)
    total = int(memory.total)
    if known is not None and least // 2 <= total - known.total_bytes <= most * 2:
        return known.total_bytes, int(memory.free)
    return total - usual, int(memory.free)


def _processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    """Who computes on the GPU; empty where the driver does not say (containers, Windows)."""
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return ()
    return tuple(GpuProcess(int(p.pid), _process_name(nvml, p.pid), p.usedGpuMemory) for p in running)


def _process_name(nvml: Any, pid: int) -> str:
    try:
        return _text(nvml.nvmlSystemGetProcessName(pid))
    except nvml.NVMLError:
        return ""


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
