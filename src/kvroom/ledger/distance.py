"""How far a launch is from anything that was measured, and how wide its intervals are for that.

The parts of a ledger come with a spread that says how they compare with each other: more bytes of experts, more room
for error. How much of it 80 and 95 of 100 launches need is measured: ``data/vllm/spread.json`` holds the factors by
class of launch, made by ``python -m benchmarks.spread`` from what public launches logged.
"""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from kvroom.devices.device import Device
from kvroom.ledger.entries import Basis, Entry, Ledger
from kvroom.ledger.traced import factors_for
from kvroom.models.shape import ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.settings import Settings

FLOOR = 16 * 2**20
"""Bytes that no launch is known to: what a log rounds away, and what an allocator rounds up."""


class Distance(StrEnum):
    """Classes of launches, from the nearest."""

    TRACED = "traced"
    """Its architecture was traced in its release."""
    NEIGHBOUR = "neighbour"
    """Its kind of model was traced, or its architecture in a release nearby."""
    ESTIMATED = "estimated"
    """By formulas and constants of logs alone."""
    FAR = "far"
    """Another maker's card, memory shared with the CPU, or a checkpoint that had to be assumed."""
    UNKNOWN = "unknown"
    """Nothing like it was logged: adapters on experts, sparse latent attention, an architecture that was assumed."""


class Factors(NamedTuple):
    """What the spread of an entry is multiplied with."""

    near: float
    """For 80 launches of 100."""
    wide: float
    """For 95."""


def distance_of(shape: ModelShape, args: EngineArgs, settings: Settings, device: Device, activation: Entry) -> Distance:
    """The class of a launch whose activation peak is ``activation``."""
    if shape.assumptions or _never_logged(shape, args):
        return Distance.UNKNOWN
    if device.vendor != "NVIDIA" or device.unified or _checkpoint_assumed(shape):
        return Distance.FAR
    if activation.basis is Basis.TRACED:
        return Distance.TRACED
    return Distance.ESTIMATED if factors_for(shape, args, settings) is None else Distance.NEIGHBOUR


def _never_logged(shape: ModelShape, args: EngineArgs) -> bool:
    sparse = shape.mla is not None and (shape.mla.sparse or shape.mla.compress_ratio > 1)
    return sparse or (args.enable_lora and (shape.is_moe or shape.has_state))


def _checkpoint_assumed(shape: ModelShape) -> bool:
    """Whether files of such models leave some modules plain that cannot be told from here."""
    quantization = shape.quantization
    if quantization is None:
        return False
    return quantization.unlisted or (quantization.assumed and (shape.is_moe or shape.has_state))


def calibrated(ledger: Ledger, distance: Distance) -> Ledger:
    """``ledger`` with intervals that hold 80 and 95 of 100 launches of its class."""
    factors = _table()
    return Ledger(*(_spread(entry, factors.get((entry.name, distance))) for entry in ledger))


def _spread(entry: Entry, factors: Factors | None) -> Entry:
    if factors is None or (entry.low == entry.high and entry.name != "available"):
        return entry
    down, up = raw_spread(entry)
    near, wide = factors
    return replace(
        entry,
        low=int(entry.expected - near * down),
        high=int(entry.expected + near * up),
        wide=(int(entry.expected - wide * down), int(entry.expected + wide * up)),
    )


def raw_spread(entry: Entry) -> tuple[int, int]:
    """Bytes below and above ``expected`` before they are made to hold a share of launches."""
    return entry.expected - entry.low + FLOOR, entry.high - entry.expected + FLOOR


def unscaled(entry: Entry, distance: Distance) -> tuple[float, float]:
    """Bytes below and above ``expected`` of a calibrated entry as they were before."""
    factors = _table().get((entry.name, distance))
    if factors is None:
        return raw_spread(entry)
    return entry.spread_down / factors.near, entry.spread_up / factors.near


@cache
def _table() -> dict[tuple[str, Distance], Factors]:
    text = files("kvroom.data.vllm").joinpath("spread.json").read_text("utf-8")
    entries = json.loads(text)["entries"]
    return {
        (name, Distance(distance)): Factors(found["factor80"], found["factor95"])
        for name, classes in entries.items()
        for distance, found in classes.items()
    }
