# ruff: noqa: N802, N815 - the fake has the names of pynvml
from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kvroom.devices.probe import NvmlProbe
from kvroom.errors import DeviceError
from kvroom.units import GIB, MIB


class NvmlError(Exception):
    """Stands for pynvml.NVMLError."""


@dataclass
class Card:
    name: str | bytes
    total: int
    free: int
    capability: tuple[int, int] = (8, 9)
    reserved: int | None = None
    processes: tuple[tuple[int, int | None], ...] = ()
    uuid: str = ""
    no_memory: bool = False


@dataclass
class FakeNvml:
    """The functions of pynvml that the probe calls, over cards made up here."""

    cards: list[Card] = field(default_factory=list)
    driver: bool = True
    closed: int = 0
    NVMLError = NvmlError
    nvmlMemory_v2 = 2

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NvmlError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:
        for card in self.cards:
            if card.uuid == uuid:
                return card
        raise NvmlError("Not Found")

    def nvmlDeviceGetName(self, card: Card) -> str | bytes:
        return card.name

    def nvmlDeviceGetMemoryInfo(self, card: Card, version: int | None = None) -> Any:
        if card.no_memory or (version is not None and card.reserved is None):
            raise NvmlError("Not Supported")
        return SimpleNamespace(total=card.total, free=card.free, reserved=card.reserved)

    def nvmlDeviceGetCudaComputeCapability(self, card: Card) -> tuple[int, int]:
        return card.capability

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.processes]

    def nvmlSystemGetProcessName(self, pid: int) -> bytes:
        if pid == 666:
            raise NvmlError("No Permission")
        return f"/usr/bin/python{pid}".encode()


def rtx_4090(**changes: Any) -> Card:
    return Card(**{"name": "NVIDIA GeForce RTX 4090", "total": 24564 * MIB, "free": 20 * GIB, **changes})


def test_one_card() -> None:
    nvml = FakeNvml([rtx_4090(processes=((12, 3 * GIB), (666, None)))])
    machine = NvmlProbe(nvml, {}).machine()
    assert machine.count == 1
    assert machine.device.id == "rtx-4090"
    assert machine.device.total_bytes == 24217 * MIB  # NVML's less the driver's share, as torch reports it
    assert machine.device.basis == "measured"
    assert machine.free_bytes == 20 * GIB
    first, second = machine.processes
    assert (first.pid, first.name, first.used_bytes) == (12, "/usr/bin/python12", 3 * GIB)
    assert (second.pid, second.name, second.used_bytes) == (666, "", None)
    assert nvml.closed == 1


def test_the_reserve_that_the_driver_names_is_subtracted() -> None:
    machine = NvmlProbe(FakeNvml([rtx_4090(reserved=350 * MIB)]), {}).machine()
    assert machine.device.total_bytes == (24564 - 350) * MIB


def test_a_card_that_differs_from_the_catalogue_or_is_not_in_it_loses_the_usual_reserve() -> None:
    converted = NvmlProbe(FakeNvml([rtx_4090(total=49140 * MIB)]), {}).machine()
    unknown = NvmlProbe(FakeNvml([rtx_4090(name="NVIDIA X9000", total=49140 * MIB)]), {}).machine()
    assert converted.device.total_bytes == unknown.device.total_bytes == (49140 - 470) * MIB
    assert unknown.device.id == ""


def test_the_smallest_of_mixed_cards_decides_and_the_least_free_memory() -> None:
    nvml = FakeNvml(
        [
            Card("NVIDIA H100 80GB HBM3", 81559 * MIB, 70 * GIB, (9, 0), processes=((5, GIB),)),
            rtx_4090(processes=((4, GIB),)),
            rtx_4090(free=11 * GIB),
        ]
    )
    machine = NvmlProbe(nvml, {}).machine()
    assert (machine.count, machine.device.id, machine.free_bytes) == (3, "rtx-4090", 11 * GIB)
    assert [process.pid for process in machine.processes] == [4, 5]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", ["b"]),
        ("1,0", ["b", "a"]),
        ("0, 1", ["a", "b"]),
        ("GPU-b", ["b"]),
        ("0,-1,1", ["a"]),
        ("0,7", ["a"]),
    ],
)
def test_cuda_visible_devices_is_honoured(visible: str, expected: list[str]) -> None:
    sizes = {"a": 24 * GIB, "b": 48 * GIB}
    cards = [Card(f"NVIDIA Card {key}", sizes[key], GIB, uuid=f"GPU-{key}") for key in ("a", "b")]
    machine = NvmlProbe(FakeNvml(cards), {"CUDA_VISIBLE_DEVICES": visible}).machine()
    assert machine.count == len(expected)
    assert machine.device.name == f"NVIDIA Card {min(expected, key=lambda key: sizes[key])}"


@pytest.mark.parametrize("visible", ["", "-1", "none", "9"])
def test_hidden_gpus_are_said(visible: str) -> None:
    nvml = FakeNvml([rtx_4090()])
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES"):
        NvmlProbe(nvml, {"CUDA_VISIBLE_DEVICES": visible}).machine()
    assert nvml.closed == 1


@pytest.mark.parametrize("nvml", [FakeNvml(driver=False), FakeNvml([])])
def test_no_driver_and_no_gpu_say_what_to_do(nvml: FakeNvml) -> None:
    with pytest.raises(DeviceError, match="no NVIDIA GPU here") as error:
        NvmlProbe(nvml, {}).machine()
    assert "--gpu" in error.value.cure


def test_unified_memory_without_a_total_in_nvml_takes_the_catalogues() -> None:
    machine = NvmlProbe(FakeNvml([Card("NVIDIA GB10", 0, 0, (12, 1), no_memory=True)]), {}).machine()
    assert machine.device.total_bytes == 122481 * MIB
    assert machine.device.unified
    assert machine.free_bytes is None


def test_an_unknown_card_without_a_total_is_an_error() -> None:
    with pytest.raises(DeviceError, match="cannot read"):
        NvmlProbe(FakeNvml([Card("NVIDIA X9000", 0, 0, no_memory=True)]), {}).machine()


def test_names_may_be_bytes() -> None:
    machine = NvmlProbe(FakeNvml([rtx_4090(name=b"NVIDIA GeForce RTX 4090")]), {}).machine()
    assert machine.device.name == "NVIDIA GeForce RTX 4090"
