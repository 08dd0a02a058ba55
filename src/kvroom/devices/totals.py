"""What torch reports as a card's total memory, the base of vLLM's budget, when nobody logged it.

torch asks the CUDA driver, whose total is nvidia-smi's less what the driver keeps for itself. Over the
cards for which the catalogue knows both, that reserve is 240 to 730 MiB (less on Pascal and Volta) and
grows with the release of the driver, not in proportion to the card. AMD's cards report almost the full
binary size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvroom.units import MIB

RESERVE_MIB = (70, 470, 730)
"""What NVIDIA's driver keeps: lowest, usual and highest seen in the catalogue."""
_NEWER_DRIVER = 0.997
"""Newer drivers report less for the same card, mostly by a few MiB; 1.5 % on some older cards."""
_WINDOWS = 0.996
"""On Windows and WSL torch reports nvidia-smi's figure; such a log does not widen the range on Linux."""


class Total(NamedTuple):
    """A device's total in bytes with its range, and where it comes from."""

    low: int
    expected: int
    high: int
    basis: str


def torch_total(entry: Mapping[str, Any]) -> Total:
    """The total of a catalogue entry: logged where it was logged, else estimated from its class."""
    observed = entry.get("torch_mib", ())
    expected = entry.get("total_mib")
    if expected is not None and observed:
        driver = entry.get("driver_mib") or entry["nominal_gb"] * 1024
        linux = [seen for seen in observed if seen < driver * _WINDOWS or seen <= expected]
        low = min(int(expected * _NEWER_DRIVER), *linux, expected)
        return _total(low, expected, max(*linux, expected), "published")
    low, expected, high = _estimate(entry)
    return _total(min(low, *observed, low), expected, max(high, *observed, high), "estimated")


def _estimate(entry: Mapping[str, Any]) -> tuple[int, int, int]:
    """MiB as lowest, expected and highest, from the nominal size, the vendor and the driver's figure."""
    if "estimate_mib" in entry:
        low, expected, high = entry["estimate_mib"]
        return low, expected, high
    nominal = int(entry["nominal_gb"] * 1024)
    if entry.get("total_mib") is not None:
        return int(entry["total_mib"] * 0.98), entry["total_mib"], nominal
    if entry.get("unified"):
        return int(nominal * 0.85), int(nominal * 0.955), nominal
    if entry["vendor"] == "NVIDIA":
        driver = entry.get("driver_mib") or int(nominal * 0.998)
        least, usual, most = RESERVE_MIB
        return int(driver * 0.995) - most, driver - usual, driver - least
    share = 0.995 if entry["vendor"] == "AMD" else 0.96
    return int(nominal * share * 0.98), int(nominal * share), nominal


def _total(low: int, expected: int, high: int, basis: str) -> Total:
    return Total(min(low, expected) * MIB, expected * MIB, max(high, expected) * MIB, basis)
