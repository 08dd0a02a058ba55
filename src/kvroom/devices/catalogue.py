"""The packaged catalogue of accelerators: find one by the names that people, drivers and clusters use."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from kvroom.devices.device import Device
from kvroom.devices.names import words
from kvroom.devices.totals import torch_total
from kvroom.errors import DeviceError
from kvroom.units import GIB, MIB, show_bytes

_OPTIONAL = frozenset(
    {"blackwell", "hbm2", "hbm2e", "hbm3", "hbm3e", "pcie", "sxm", "sxm2", "sxm4", "sxm5", "sxm6", "ac"}
)
"""Words that may be left out of a name without making it another card."""


@dataclass(frozen=True, slots=True)
class Part:
    """One accelerator of the catalogue, prepared for matching."""

    device: Device
    nominal_gb: float
    driver_bytes: int | None
    default: bool
    variants: tuple[frozenset[str], ...]
    """The words of each name it goes by."""
    all_words: frozenset[str]
    also: tuple[str, ...]
    """Names by which people write it, beside the driver's."""

    @property
    def label(self) -> str:
        """The name with the number on the box, for lists of choices."""
        size = f"{self.nominal_gb:g}"
        return self.device.name if size in self.device.name else f"{self.device.name} ({size} GB)"


@cache
def parts() -> tuple[Part, ...]:
    """Every accelerator of ``data/devices/gpus.json``."""
    text = files("kvroom.data.devices").joinpath("gpus.json").read_text("utf-8")
    return tuple(_part(entry) for entry in json.loads(text)["gpus"])


@cache
def find_device(name: str, memory_bytes: int | None = None) -> Device:
    """The catalogue's device that ``name`` means.

    ``memory_bytes`` tells parts of one family apart; when it is not the number on the box (or the one of
    nvidia-smi) it replaces the total that torch is taken to report. A family whose parts differ in memory
    is an error unless one of them is what everyone means (H100: the 80 GB SXM board), which ``note`` says.
    Raises DeviceError with the choices, or with the nearest names when nothing matches.
    """
    wanted = words(name)
    if "mig" in wanted:
        raise DeviceError(
            f"'{name}' is a MIG slice, whose share of the card the name does not give.",
            "Name the card and give the slice's memory, e.g. --gpu A100-80GB --gpu-memory 9.5GiB.",
        )
    found = _candidates(wanted)
    if not found:
        raise DeviceError(f"No GPU called '{name}' in the catalogue.", _nearest(name))
    whole = any(wanted >= _essential(variant) for part in found for variant in part.variants)
    chosen = _by_memory(found, memory_bytes) if memory_bytes else _usual(found, by_default=whole)
    if len({part.nominal_gb for part in chosen}) > 1:
        raise DeviceError(
            f"'{name}' can be several cards with different memory.",
            "Say which: " + "; ".join(sorted({part.label for part in found})) + ".",
        )
    part = chosen[0]
    device = _with_memory(part, memory_bytes) if memory_bytes else part.device
    others = [other.label for other in found if other is not part]
    if others and not memory_bytes:
        device = replace(device, note=f"'{name}' is taken as {part.label}, not {' or '.join(others)}.")
    return device


def find_by_driver_name(name: str, total_bytes: int | None = None) -> Device | None:
    """The device that a log names, with the total that the log gives; None when neither is known.

    A name that several parts share is settled by the nearest total.
    """
    wanted = words(name)
    found = [part for part in parts() if wanted in part.variants] or list(_candidates(wanted))
    if not found:
        return custom_device(name, total_bytes, None) if total_bytes else None
    if total_bytes is None:
        return _usual(found)[0].device
    part = min(found, key=lambda part: abs(part.device.total_bytes - total_bytes))
    return replace(
        part.device, total_bytes=total_bytes, total_low=total_bytes, total_high=total_bytes, basis="measured"
    )


def custom_device(
    name: str, total_bytes: int, capability: tuple[int, int] | str | None, vendor: str = "NVIDIA"
) -> Device:
    """A device that the catalogue does not have: ``total_bytes`` as torch reports it, capability ``8.9``.

    Raises DeviceError when the capability cannot be read.
    """
    if isinstance(capability, str):
        major, dot, minor = capability.partition(".")
        if not (dot and major.isdecimal() and minor.isdecimal() and len(capability) <= 5):
            raise DeviceError(f"'{capability[:20]}' is not a compute capability.", "Write it as in 8.9.")
        capability = int(major), int(minor)
    if total_bytes <= 0:
        raise DeviceError(f"{name}: a GPU cannot have {total_bytes} bytes of memory.")
    return Device(name, vendor, capability, total_bytes, total_bytes, total_bytes, "measured")


@cache
def larger_devices(device: Device) -> tuple[Device, ...]:
    """Cards of the same vendor with a tenth more memory than ``device`` or more, and a logged total, smallest first."""
    found = {
        part.device
        for part in parts()
        if part.device.vendor == device.vendor
        and part.device.basis == "published"
        and not part.device.unified
        and part.device.total_bytes >= 1.1 * device.total_bytes
        and part.device.compute_capability not in {(6, 0), (7, 0), (7, 5)}
    }
    return tuple(sorted(found, key=lambda device: (device.total_bytes, device.name)))


def _part(entry: dict[str, Any]) -> Part:
    total = torch_total(entry)
    capability = entry.get("capability") or ""
    major, _, minor = capability.partition(".")
    device = Device(
        name=entry["names"][0],
        vendor=entry["vendor"],
        compute_capability=(int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None,
        total_bytes=total.expected,
        total_low=total.low,
        total_high=total.high,
        basis=total.basis,
        unified=entry.get("unified", False),
        id=entry["id"],
        multiprocessors=entry.get("multiprocessors"),
    )
    also = tuple(entry.get("also", ()))
    variants = tuple(words(name) for name in (*entry["names"], entry["name"], entry["id"], *also))
    size = f"{entry['nominal_gb']:g}gb"
    driver = entry.get("driver_mib")
    return Part(
        device,
        entry["nominal_gb"],
        driver * MIB if driver else None,
        entry.get("default", False),
        variants,
        frozenset().union({size}, *variants),
        also,
    )


def _candidates(wanted: frozenset[str]) -> tuple[Part, ...]:
    """Parts whose name has all the words ``wanted``, only those with the fewest words left over."""
    if not wanted:
        return ()
    sizes = _sizes(wanted)
    scored: list[tuple[int, Part]] = []
    for part in parts():
        if wanted <= part.all_words and wanted > sizes:
            named = (variant for variant in part.variants if variant & (wanted - sizes))
            scored.append((min(len(_essential(variant) - wanted) for variant in named), part))
    least = min((left for left, _ in scored), default=0)
    if least > 2:
        return ()
    return tuple(part for left, part in scored if left == least)


def _essential(variant: frozenset[str]) -> frozenset[str]:
    return variant - _OPTIONAL - _sizes(variant)


def _sizes(names: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in names if word.endswith("gb") and word[:-2].isdecimal())


def _usual(found: Sequence[Part], *, by_default: bool = True) -> list[Part]:
    """The part that a family name means where one does, else all of ``found``; logged totals first."""
    chosen = [part for part in found if part.default and by_default] or list(found)
    return sorted(chosen, key=lambda part: part.device.basis != "published")


def _by_memory(found: Iterable[Part], memory_bytes: int) -> list[Part]:
    """The parts of ``found`` nearest to ``memory_bytes``, if any comes near; else what ``_usual`` says."""
    near = [part for part in found if _distance(part, memory_bytes) < 0.06]
    if not near:
        return _usual(list(found))
    least = min(_distance(part, memory_bytes) for part in near)
    return _usual([part for part in near if _distance(part, memory_bytes) <= least + 0.01])[:1]


def _distance(part: Part, memory_bytes: int) -> float:
    sizes = (part.device.total_bytes, part.driver_bytes, part.nominal_gb * 10**9, part.nominal_gb * GIB)
    return min(abs(size - memory_bytes) / memory_bytes for size in sizes if size)


def _with_memory(part: Part, memory_bytes: int) -> Device:
    box = (part.driver_bytes, part.nominal_gb * 10**9, part.nominal_gb * GIB)
    if any(size and abs(size - memory_bytes) / memory_bytes < 0.002 for size in box):
        return part.device
    known = show_bytes(part.device.total_bytes)
    return replace(
        part.device,
        total_bytes=memory_bytes,
        total_low=memory_bytes,
        total_high=memory_bytes,
        basis="measured",
        note=f"The total is {show_bytes(memory_bytes)} as given; the catalogue has {known}.",
    )


def _nearest(name: str) -> str:
    brand = re.compile(r"\b(nvidia|geforce|amd|intel\(r\)|graphics)\s*")
    spelled = {brand.sub("", text.lower()): part for part in parts() for text in (part.device.name, *part.also)}
    near = difflib.get_close_matches(brand.sub("", name.lower()), spelled, n=12, cutoff=0.5)
    labels = list(dict.fromkeys(spelled[text].device.name for text in near))[:5]
    if labels:
        return f"The nearest: {', '.join(labels)}."
    return "For a card that is not in the catalogue, name one of its architecture and give --gpu-memory."
