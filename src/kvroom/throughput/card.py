"""What a card can do in a second, by its published figures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kvroom.devices.device import Device
from kvroom.errors import DeviceError

GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class Card:
    """Peak rates of one card: bytes and floating point operations a second."""

    name: str
    bandwidth: float
    """Of its memory."""
    half: float
    """Dense operations in 16 bits."""
    eight: float
    """Dense operations in 8 bits; those in 16 bits where it has no faster ones."""
    four: float
    link: float
    """Bytes a second that one card sends to its neighbours, in one direction."""
    fabric: bool
    """The cards are joined by NVLink, Infinity Fabric or the like, not by PCIe alone."""
    basis: str
    """Where the figures are from."""


@cache
def _entries() -> dict[str, dict[str, Any]]:
    text = files("kvroom.data.devices").joinpath("gpus.json").read_text("utf-8")
    return {entry["id"]: entry for entry in json.loads(text)["gpus"]}


def known(device: Device) -> bool:
    """Whether the catalogue has this card's rates."""
    entry = _entries().get(device.id, {})
    return bool(entry.get("bandwidth_gb_s")) and bool(_half(entry))


@cache
def card_of(device: Device) -> Card:
    """The rates of ``device``; DeviceError where the catalogue lacks its bandwidth or its arithmetic."""
    entry = _entries().get(device.id, {})
    if not known(device):
        raise DeviceError(
            f"The catalogue has no memory bandwidth and arithmetic rate for {device.name}.",
            "Throughput cannot be told for this card; everything else can.",
        )
    rates = entry["tflops"]
    half = _half(entry)
    eight = rates.get("fp8") or rates.get("int8") or half
    links = entry.get("interconnect", {})
    fabric = "fabric_gb_s_bidirectional" in links
    link = links["fabric_gb_s_bidirectional"] / 2 if fabric else links.get("pcie_gb_s_per_direction", 16)
    return Card(
        device.name,
        entry["bandwidth_gb_s"] * GIGA,
        half * TERA,
        eight * TERA,
        (rates.get("fp4") or eight) * TERA,
        link * GIGA,
        fabric,
        f"bandwidth: {entry['bandwidth_basis']}; arithmetic: {entry['tflops_basis']}",
    )


def _half(entry: dict[str, Any]) -> float:
    rates = entry.get("tflops") or {}
    return float(rates.get("bf16") or rates.get("fp16") or 0.0)
