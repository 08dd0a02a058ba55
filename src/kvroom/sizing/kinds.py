"""The ways to store weights that are compared, with what is known of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kvroom.devices.device import Device
from kvroom.vllm.releases import Release, parse_release


@dataclass(frozen=True, slots=True)
class StoredAs:
    """One way to store weights."""

    name: str
    """What ``--assume-quantization`` takes."""
    label: str
    since: Release
    until: Release | None
    """The first release that reads it no more."""
    online: bool
    """VLLM makes it of a plain checkpoint."""
    weight_only: bool
    """Computed in 16 bits on every card."""
    experts_only: bool
    computes_from: tuple[int, int] | None
    caveat: str
    """What was measured of its quality, one line."""
    source: str

    def read_by(self, release: Release) -> str:
        """Empty where ``release`` reads it, else why not."""
        if release < self.since:
            return f"vLLM {self.since} is the first that reads it"
        if self.until is not None and release >= self.until:
            return f"vLLM reads it no more since {self.until}"
        return ""

    def computed_on(self, device: Device) -> str:
        """How ``device`` computes with it: ``native`` or ``weight-only`` (unpacked to 16 bits)."""
        if self.weight_only:
            return "weight-only"
        have = device.compute_capability
        if device.vendor != "NVIDIA" or have is None or self.computes_from is None:
            return "native"
        return "native" if have >= self.computes_from else "weight-only"


@cache
def kinds() -> tuple[StoredAs, ...]:
    """All of ``data/sizing/quant.json``, in its order."""
    data = json.loads(files("kvroom.data.sizing").joinpath("quant.json").read_text("utf-8"))
    return tuple(
        StoredAs(
            entry["name"],
            entry["label"],
            parse_release(entry["since"]),
            parse_release(entry["until"]) if "until" in entry else None,
            entry.get("online", False),
            entry.get("weight_only", False),
            entry.get("experts_only", False),
            _capability(entry.get("computes_from")),
            entry["caveat"],
            data["sources"][entry["source"]],
        )
        for entry in data["kinds"]
    )


def _capability(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, _, minor = text.partition(".")
    return int(major), int(minor)
