"""The machine a launch runs on: one kind of GPU, how many, and what is free on it."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.units import GIB

CONTEXT_GIB = (0.25, 0.45, 0.6)
"""What a CUDA context takes of an idle card before vLLM's first snapshot: least, usual, most."""


@dataclass(frozen=True, slots=True)
class Device:
    """One kind of accelerator as the packaged catalogue or a probe describes it."""

    name: str
    """The name that the driver prints, e.g. ``NVIDIA H100 80GB HBM3``."""
    vendor: str
    """``NVIDIA``, ``AMD``, ``Intel``, ..."""
    compute_capability: tuple[int, int] | None
    """CUDA compute capability, None where the notion does not apply."""
    total_bytes: int
    """What torch reports as the device's total, the base of vLLM's budget; not the number on the box."""
    total_low: int
    """Lowest total seen on this card (newer drivers report less)."""
    total_high: int
    basis: str
    """``measured`` or given, ``published`` (logged on such a card), ``estimated`` (from the nominal size)."""
    unified: bool = False
    """The memory is shared with the CPU, so other use of it changes from minute to minute."""
    id: str = ""
    """Key in the catalogue, empty when the device is not in it."""
    multiprocessors: int | None = None
    """Of an NVIDIA GPU; some kernels take a buffer for each."""
    note: str = ""
    """What was decided in reading its name or memory, one sentence, for people."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory on a GPU."""

    pid: int
    name: str
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class Machine:
    """``count`` equal devices and what is free on the fullest of them."""

    device: Device
    count: int = 1
    free_bytes: int | None = None
    """Free before the launch, on the device with the least; None when nobody said."""
    processes: tuple[GpuProcess, ...] = ()

    def free_before_launch(self, side: int = 0) -> int:
        """Bytes free when vLLM looks first: as said, else the total less a context.

        ``side`` is -1 for the least that may be free, 0 for the usual, 1 for the most.
        """
        if self.free_bytes is not None:
            return self.free_bytes
        return self.device.total_bytes - int(CONTEXT_GIB[1 - side] * GIB)
