import json
from importlib.resources import files
from pathlib import Path

import pytest

from kvroom.devices.catalogue import custom_device, find_by_driver_name, find_device, larger_devices, parts
from kvroom.errors import DeviceError
from kvroom.units import GIB, MIB

NAMES = json.loads((Path(__file__).parents[1] / "data/devices/names.json").read_text("utf-8"))["names"]


@pytest.mark.parametrize(("name", "identity"), NAMES)
def test_a_card_is_found_by_the_ways_people_write_it(name: str, identity: str) -> None:
    assert find_device(name).id == identity


def test_every_entry_is_found_by_its_id_and_its_drivers_name_with_the_size_on_the_box() -> None:
    for part in parts():
        size = int(part.nominal_gb * 10**9)
        assert find_device(part.device.id, size).id == part.device.id
        assert find_device(part.device.name, size).id == part.device.id


def test_every_entry_has_a_source_a_unique_id_and_a_total_near_the_box() -> None:
    entries = json.loads(files("kvroom.data.devices").joinpath("gpus.json").read_text("utf-8"))["gpus"]
    assert len({entry["id"] for entry in entries}) == len(entries) == 149
    for entry, part in zip(entries, parts(), strict=True):
        assert entry.get("sources") or part.device.basis == "estimated"
        device = part.device
        assert 0 < device.total_low <= device.total_bytes <= device.total_high
        per_device = 2 if entry["id"] in {"mi250", "mi250x"} else 1
        assert 0.7 < device.total_bytes * per_device / (part.nominal_gb * GIB) < 1.01 or device.unified
        assert device.basis in {"published", "estimated"}


def test_totals_are_what_torch_logged_not_the_box() -> None:
    card = find_device("RTX 4090")
    assert card.total_low < card.total_bytes == card.total_high == 24217 * MIB  # 24563 is Windows
    assert card.compute_capability == (8, 9)
    assert card.basis == "published"
    assert find_device("H100").total_bytes == 81090 * MIB
    assert find_device("GB10").unified


def test_a_total_that_nobody_logged_is_estimated_and_its_range_holds_the_known_cards() -> None:
    """The class rule, asked about cards whose total is known, brackets it."""
    from kvroom.devices.totals import torch_total

    entries = json.loads(files("kvroom.data.devices").joinpath("gpus.json").read_text("utf-8"))["gpus"]
    outside = []
    for entry in entries:
        known = entry.get("total_mib")
        if known is None or entry["vendor"] != "NVIDIA" or entry.get("unified") or not entry.get("torch_mib"):
            continue
        blind = torch_total({key: value for key, value in entry.items() if key not in {"torch_mib", "total_mib"}})
        assert blind.basis == "estimated"
        if not blind.low <= known * MIB <= blind.high:
            outside.append(entry["id"])
    assert outside == ["t4"]  # ECC takes a sixteenth of a T4, which the number on its box does not show


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("A100", ["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"]),
        ("V100", ["Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"]),
        ("RTX 6000", ["Quadro RTX 6000 (24 GB)", "NVIDIA RTX 6000 Ada Generation (48 GB)", "96 GB"]),
        ("RTX PRO 5000", ["48 GB", "72 GB"]),
        ("Orin", ["32 GB", "64 GB"]),
    ],
)
def test_a_family_of_different_memory_is_ambiguous_and_lists_its_parts(name: str, choices: list[str]) -> None:
    with pytest.raises(DeviceError) as error:
        find_device(name)
    assert name in error.value.problem
    for choice in choices:
        assert choice in error.value.cure


@pytest.mark.parametrize(
    ("typo", "nearest"),
    [
        ("RTX 4900", "NVIDIA GeForce RTX 4090"),
        ("H1000", "NVIDIA H100 80GB HBM3"),
        ("MI300", "AMD Instinct MI300X"),
        ("RTX PRO 600", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
        ("L40 S", "NVIDIA L40S"),
    ],
)
def test_a_typo_lists_the_nearest_names(typo: str, nearest: str) -> None:
    with pytest.raises(DeviceError) as error:
        find_device(typo)
    assert nearest in error.value.cure


@pytest.mark.parametrize("name", ["", "x", "RTX", "NVIDIA", "16GB", "banana", "\0", "x" * 10_000])
def test_what_is_no_card_is_an_error(name: str) -> None:
    with pytest.raises(DeviceError):
        find_device(name)


def test_a_mig_slice_asks_for_its_memory() -> None:
    with pytest.raises(DeviceError, match="MIG slice"):
        find_device("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb")


def test_a_family_name_with_an_evident_part_says_so() -> None:
    assert "5060 Ti (8 GB)" in find_device("5060 Ti").note
    assert find_device("5060 Ti 16GB").note == ""


def test_memory_tells_parts_apart() -> None:
    assert find_device("A100", 80 * 10**9).id == "a100-sxm-80gb"
    assert find_device("A100", 40 * GIB).id == "a100-sxm-40gb"
    assert find_device("RTX PRO 5000", 72 * GIB).id == "rtx-pro-5000-blackwell-72gb"
    assert find_device("V100", 32 * GIB).id == "v100-sxm2-32gb"


@pytest.mark.parametrize("size", [24 * GIB, 24 * 10**9, 24564 * MIB])
def test_the_box_and_nvidia_smi_leave_the_logged_total(size: int) -> None:
    assert find_device("RTX 4090", size).total_bytes == 24217 * MIB


def test_any_other_memory_replaces_the_total() -> None:
    converted = find_device("RTX 4090", 48 * GIB)
    assert converted.total_bytes == converted.total_low == converted.total_high == 48 * GIB
    assert converted.compute_capability == (8, 9)
    assert converted.basis == "measured"
    assert "48.00 GiB" in converted.note


def test_a_log_gives_its_own_total() -> None:
    card = find_by_driver_name("NVIDIA GeForce RTX 4060 Ti", 7900 * MIB)
    assert card is not None
    assert (card.id, card.total_bytes, card.basis) == ("rtx-4060-ti-8gb", 7900 * MIB, "measured")
    known = find_by_driver_name("NVIDIA L4")
    assert known is not None
    assert known.total_bytes == 22563 * MIB
    unknown = find_by_driver_name("NVIDIA X9000", 50 * GIB)
    assert unknown is not None
    assert (unknown.id, unknown.compute_capability) == ("", None)
    assert find_by_driver_name("NVIDIA X9000") is None


def test_a_card_can_be_made_up() -> None:
    card = custom_device("X9000", 50 * GIB, "12.1")
    assert (card.compute_capability, card.total_bytes) == ((12, 1), 50 * GIB)


@pytest.mark.parametrize("capability", ["", "8", "8.", ".9", "a.b", "8.9.1", "sm_89", "100.100"])
def test_a_capability_that_cannot_be_read_is_an_error(capability: str) -> None:
    with pytest.raises(DeviceError, match=r"8\.9"):
        custom_device("X9000", 50 * GIB, capability)


def test_larger_cards_come_in_order_and_from_the_same_vendor() -> None:
    card = find_device("RTX 4090")
    larger = larger_devices(card)
    assert larger
    totals = [each.total_bytes for each in larger]
    assert totals == sorted(totals)
    assert all(each.vendor == "NVIDIA" and each.total_bytes > card.total_bytes for each in larger)
    assert "NVIDIA H100 80GB HBM3" in [each.name for each in larger]
