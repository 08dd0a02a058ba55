from __future__ import annotations

from pathlib import Path

from kvroom.devices.inventory import Gpu, Inventory
from kvroom.errors import DeviceError
from kvroom.trials.memory import GpuMemory, HostMemory, NoMemory
from kvroom.units import GIB


class Card:
    """Two GPUs whose use is set."""

    def __init__(self, *used: int) -> None:
        self.used = list(used)

    def __call__(self) -> Inventory:
        gpus = tuple(Gpu(at, "GPU", 24 * GIB, used) for at, used in enumerate(self.used))
        return Inventory("NVIDIA", gpus, "1")


def test_the_peak_is_of_the_gpu_on_which_use_grew_and_counts_what_others_hold() -> None:
    card = Card(20 * GIB, GIB)
    memory = GpuMemory(card)
    memory.begin()
    for used in (GIB, 12 * GIB, 8 * GIB):
        card.used[1] = used
        memory.sample(1)

    peak = memory.peak()
    assert peak is not None
    assert (peak.used_bytes, peak.share) == (12 * GIB, 0.5)
    card.used[1] = 3 * GIB
    assert memory.left() == 2 * GIB
    memory.begin()
    assert (memory.peak(), memory.left()) == (None, 0)


def test_a_driver_that_does_not_answer_is_no_error() -> None:
    def gone() -> Inventory:
        raise DeviceError("gone")

    memory = GpuMemory(gone)
    memory.begin()
    memory.sample(1)
    assert (memory.peak(), memory.left()) == (None, 0)


def test_resident_memory_is_that_of_one_session(tmp_path: Path) -> None:
    for pid, session, pages in ((10, 7, 100), (11, 7, 50), (12, 8, 1000)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a b) c) S 1 2 {session} " + "0 " * 17 + f"{pages} 0\n")
    (tmp_path / "13").mkdir()  # it ended meanwhile
    memory = HostMemory(10**9, tmp_path)
    memory.sample(7)

    peak = memory.peak()
    assert peak is not None
    assert peak.used_bytes % 150 == 0
    assert peak.device == "cpu"
    memory.begin()
    assert memory.peak() is None


def test_where_nothing_can_be_seen_nothing_is_said() -> None:
    memory = NoMemory()
    memory.begin()
    memory.sample(1)
    assert (memory.peak(), memory.left()) == (None, 0)
