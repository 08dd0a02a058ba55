# ruff: noqa: N802, N815 - the fake has the names of pynvml
from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kvroom.devices.device import GpuProcess
from kvroom.devices.inventory import Gpu
from kvroom.devices.probe import NvmlProbe
from kvroom.devices.rocm import RocmProbe
from kvroom.errors import DeviceError
from kvroom.units import GIB, MIB


class NvmlError(Exception):
    """Stands for pynvml.NVMLError."""


@dataclass
class FakeNvml:
    """Two cards: one that answers all questions, one that fell off the bus."""

    refused: frozenset[str] = frozenset()
    count: int = 2
    closed: int = field(default=0)
    NVMLError = NvmlError
    nvmlMemory_v2 = 2

    def nvmlInit(self) -> None:
        self._may("init")

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:
        self._may("count")
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 1:
            raise NvmlError("GPU is lost")
        return index

    def nvmlDeviceGetName(self, _: int) -> str:
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetMemoryInfo(self, _: int, version: int | None = None) -> Any:
        self._may("memory")
        if version is not None:
            self._may("memory_v2")
        return SimpleNamespace(total=80 * GIB, free=20 * GIB, reserved=512 * MIB)

    def nvmlDeviceGetCudaComputeCapability(self, _: int) -> tuple[int, int]:
        self._may("capability")
        return 9, 0

    def nvmlDeviceGetMigMode(self, _: int) -> list[int]:
        self._may("mig")
        return [0, 1]

    def nvmlDeviceGetComputeRunningProcesses(self, _: int) -> list[Any]:
        self._may("processes")
        return [SimpleNamespace(pid=30, usedGpuMemory=59 * GIB), SimpleNamespace(pid=20, usedGpuMemory=None)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, _: int) -> list[Any]:
        self._may("processes")
        return [SimpleNamespace(pid=10, usedGpuMemory=MIB), SimpleNamespace(pid=20, usedGpuMemory=MIB)]

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        if pid == 20:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return {10: "Xorg", 30: "VLLM::EngineCore"}[pid]

    def nvmlSystemGetDriverVersion(self) -> str:
        self._may("driver")
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        self._may("driver")
        return 13010

    def _may(self, what: str) -> None:
        if what in self.refused:
            raise NvmlError(f"no {what}")


def test_every_card_is_listed_also_hidden_ones_and_one_that_is_lost() -> None:
    nvml = FakeNvml()
    inventory = NvmlProbe(nvml, {"CUDA_VISIBLE_DEVICES": ""}).inventory()
    assert (inventory.vendor, inventory.driver, inventory.cuda) == ("NVIDIA", "580.95.05", "13.1")
    first, second = inventory.gpus
    assert first == Gpu(
        index=0,
        name="NVIDIA H100 80GB HBM3",
        total_bytes=80 * GIB,
        used_bytes=60 * GIB - 512 * MIB,
        free_bytes=20 * GIB,
        reserved_bytes=512 * MIB,
        architecture="9.0",
        mig=False,
        processes=(
            GpuProcess(10, "Xorg", MIB),
            GpuProcess(20, "", None),
            GpuProcess(30, "VLLM::EngineCore", 59 * GIB),
        ),
    )
    assert second == Gpu(1, "", problem="GPU is lost")
    assert nvml.closed == 1


def test_an_older_driver_names_no_reserve() -> None:
    gpu = NvmlProbe(FakeNvml(frozenset({"memory_v2"})), {}).inventory().gpus[0]
    assert (gpu.total_bytes, gpu.used_bytes, gpu.reserved_bytes) == (80 * GIB, 60 * GIB, None)


def test_what_the_driver_refuses_is_none() -> None:
    refused = frozenset({"memory", "capability", "mig", "processes", "driver"})
    inventory = NvmlProbe(FakeNvml(refused), {}).inventory()
    assert inventory.gpus[0] == Gpu(0, "NVIDIA H100 80GB HBM3")
    assert (inventory.driver, inventory.cuda) == (None, None)


@pytest.mark.parametrize("nvml", [FakeNvml(frozenset({"init"})), FakeNvml(frozenset({"count"})), FakeNvml(count=0)])
def test_no_driver_and_no_card_are_one_clear_error(nvml: FakeNvml) -> None:
    with pytest.raises(DeviceError, match=r"no NVIDIA GPU here|NVML cannot read"):
        NvmlProbe(nvml, {}).inventory()


ROCM = {
    "card0": {
        "VRAM Total Memory (B)": "206141652992",
        "VRAM Total Used Memory (B)": "297811968",
        "Card Series": "AMD Instinct MI300X OAM",
        "GFX Version": "gfx942",
    },
    "card1": {"Card series": "Navi 21", "VRAM Total Memory (B)": "N/A"},
    "system": {"Driver version": "6.7.0"},
}


def test_rocm_smi_lists_amd_cards_also_after_a_warning() -> None:
    inventory = RocmProbe(lambda: "WARNING: low-power state\n" + json.dumps(ROCM)).inventory()
    assert (inventory.vendor, inventory.driver, inventory.cuda) == ("AMD", "6.7.0", None)
    first, second = inventory.gpus
    assert (first.name, first.architecture) == ("AMD Instinct MI300X OAM", "gfx942")
    assert (first.total_bytes, first.used_bytes, first.free_bytes) == (206141652992, 297811968, 205843841024)
    assert (second.name, second.total_bytes, second.free_bytes) == ("Navi 21", None, None)


@pytest.mark.parametrize("printed", ["", "no json", "{", "{}", '{"card0": 1}', '{"system": {}}', '{"a":' * 100_000])
def test_rocm_smi_without_cards_or_sense_is_an_error(printed: str) -> None:
    with pytest.raises(DeviceError):
        RocmProbe(lambda: printed).inventory()


def test_rocm_smi_that_is_missing_is_an_error() -> None:
    def missing() -> str:
        raise OSError("rocm-smi is not installed")

    with pytest.raises(DeviceError, match="rocm-smi is not installed"):
        RocmProbe(missing).inventory()
