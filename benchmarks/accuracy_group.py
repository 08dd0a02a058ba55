"""What a launch has in common with others: the group that is left out together, its constants, its distance."""

from __future__ import annotations

from typing import Any

from kvroom.ledger.activation import sampler_rule
from kvroom.ledger.distance import distance_of, unscaled
from kvroom.ledger.overhead import ranks
from kvroom.ledger.predict import Prediction
from kvroom.units import GIB

_ERAS = {"to 0.8": 8, "0.9 to 0.11": 11, "0.12 to 0.16": 16, "0.17 to 0.19": 19, "since 0.20": 999}
"""By what the rules of memory have in common; the last minor release of each."""


def spread_of(found: Prediction) -> dict[str, Any] | None:
    """The class of a launch's distance, and the GiB that each entry may lie below and above before calibration."""
    ledger, setup = found.ledger, found.setup
    if ledger is None or found.settings is None:
        return None
    distance = distance_of(setup.shape, setup.args, found.settings, setup.machine.device, ledger.activation)
    raw = {entry.name: [side / GIB for side in unscaled(entry, distance)] for entry in ledger}
    return {"distance": str(distance), "raw": raw}


def group_of(found: Prediction) -> dict[str, Any]:
    """What a launch has in common with others: the model's family, the card, the era of the release, its constants."""
    device = found.setup.machine.device
    minor = found.setup.release.minor
    return {
        "family": found.setup.shape.model_type,
        "card": device.name,
        "era": next(name for name, last in _ERAS.items() if minor <= last),
        "peak": found.ledger.activation.cause if found.ledger else "",
        "sampler": _since(found, sampler_rule(found.setup.args, found.settings)) if found.settings else "",
        "non_torch": _non_torch_cell(found),
    }


def _since(found: Prediction, rule: str) -> str:
    """The fitted constant that a launch takes, by its rule and the release that it holds from."""
    return f"{rule} {found.rules.rule(rule).since}"


def _non_torch_cell(found: Prediction) -> str:
    """The constant of non-torch memory that a launch takes: by maker, number of GPUs and release."""
    device = found.setup.machine.device
    world = ranks(found.setup.shape, found.setup.args)
    if device.unified:
        return "non_torch_gib_unified_extra"
    if device.vendor == "AMD":
        return f"non_torch_gib_amd {world > 1}"
    if world > 1:
        return f"{_since(found, 'non_torch_gib_parallel')} {world > 2} {world > 4}"
    hopper = (device.compute_capability or (0, 0)) >= (9, 0)
    return f"{_since(found, 'non_torch_gib_one_gpu')} {hopper}"
