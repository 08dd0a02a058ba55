"""How much memory the trial's server takes: sampled while it runs, of the GPU or of its processes.

An edge module: it asks the driver (NVML, amdsmi) and reads ``/proc``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from kvroom.devices.inventory import Gpu, Inventory
from kvroom.errors import DeviceError
from kvroom.trials.figures import Peak
from kvroom.units import MIB

_GREW = 64 * MIB
"""Bytes by which a GPU's use must grow for the server to be on it."""


class Memory(Protocol):
    """Something that sees how much memory is in use."""

    def begin(self) -> None:
        """A trial begins: what is in use now is not its own."""

    def sample(self, session: int) -> None:
        """Look once, at the server whose processes are in ``session``."""

    def peak(self) -> Peak | None:
        """The most since ``begin``; None where nothing was seen."""

    def left(self) -> int:
        """Bytes that are in use beyond what was before the trial, once its server has ended."""


class GpuMemory:
    """The memory of GPUs, of those on which use grew since the trial began."""

    def __init__(self, inventory: Callable[[], Inventory]) -> None:
        self._inventory = inventory
        self._before: dict[int, int] = {}
        self._peak: Peak | None = None

    def begin(self) -> None:
        """Note what others hold."""
        self._before = {gpu.index: gpu.used_bytes or 0 for gpu in self._gpus()}
        self._peak = None

    def sample(self, session: int) -> None:
        """Look at every GPU."""
        del session
        for gpu in self._gpus():
            used = gpu.used_bytes or 0
            if used - self._before.get(gpu.index, 0) < _GREW or not gpu.total_bytes:
                continue
            if self._peak is None or used / gpu.total_bytes > self._peak.share:
                self._peak = Peak(used, gpu.total_bytes)

    def peak(self) -> Peak | None:
        """The fullest GPU at its fullest, everything on it counted."""
        return self._peak

    def left(self) -> int:
        """Bytes that did not come back."""
        grown = [(gpu.used_bytes or 0) - self._before.get(gpu.index, 0) for gpu in self._gpus()]
        return max([0, *grown])

    def _gpus(self) -> tuple[Gpu, ...]:
        try:
            return self._inventory().gpus
        except DeviceError:
            return ()


class HostMemory:
    """The resident memory of the server's processes, where it runs on the CPU."""

    def __init__(self, total_bytes: int, proc: Path = Path("/proc")) -> None:
        self._total = total_bytes
        self._proc = proc
        self._most = 0

    def begin(self) -> None:
        """Forget the trial before."""
        self._most = 0

    def sample(self, session: int) -> None:
        """Add up the processes of ``session``."""
        page = os.sysconf("SC_PAGE_SIZE")
        self._most = max(self._most, sum(pages * page for pages in self._resident(session)))

    def peak(self) -> Peak | None:
        """Shared pages count once a process that has them."""
        return Peak(self._most, self._total, "cpu") if self._most else None

    def left(self) -> int:
        """Nothing: memory of processes ends with them."""
        return 0

    def _resident(self, session: int) -> Iterator[int]:
        for entry in self._proc.iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if int(fields[3]) == session:
                    yield int(fields[21])
            except (OSError, ValueError, IndexError):  # it ended meanwhile
                continue


class NoMemory:
    """Where nothing can be seen: a container's processes without a GPU."""

    def begin(self) -> None:
        """Nothing."""

    def sample(self, session: int) -> None:
        """Nothing."""
        del session

    def peak(self) -> Peak | None:
        """Nothing."""
        return None

    def left(self) -> int:
        """Nothing."""
        return 0
