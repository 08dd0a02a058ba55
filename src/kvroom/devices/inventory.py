"""Every GPU of a machine as its driver describes it, for a record; a launch is planned on ``device.Machine``."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.devices.device import GpuProcess


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU now. Whatever the driver does not tell is None."""

    index: int
    name: str
    total_bytes: int | None = None
    """The driver's total, the reserve included; torch reports less."""
    used_bytes: int | None = None
    """Held by processes and contexts."""
    free_bytes: int | None = None
    reserved_bytes: int | None = None
    """What the driver keeps for itself, beside used and free; None where it counts as used."""
    architecture: str | None = None
    """CUDA compute capability (``8.9``) or AMD's name of it (``gfx942``)."""
    mig: bool | None = None
    """Whether the card is cut into MIG slices."""
    processes: tuple[GpuProcess, ...] = ()
    problem: str = ""
    """Why the driver cannot read it, empty where it can."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The GPUs of one vendor, also those that CUDA_VISIBLE_DEVICES hides, with the driver's versions."""

    vendor: str
    gpus: tuple[Gpu, ...]
    driver: str | None
    cuda: str | None = None
    """The newest CUDA that the driver runs, e.g. ``13.0``."""
