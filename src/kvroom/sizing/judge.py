"""One candidate through the ledger, with what cards of a class share found once.

vLLM's settings and attention backend depend on a card's maker, architecture and batch tier only, so that they are
resolved once for all cards that agree in them; ledger, pool and verdict are made for every card.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvroom.devices.device import Device, Machine
from kvroom.ledger.predict import Prediction, Setup, predict, predict_resolved
from kvroom.ledger.verdict import Status
from kvroom.models.shape import ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.backends import BackendChoice
from kvroom.vllm.batch import device_tier
from kvroom.vllm.kv.capacity import Pool
from kvroom.vllm.releases import Release
from kvroom.vllm.rules import rules_for
from kvroom.vllm.settings import Settings


@dataclass(frozen=True, slots=True)
class Room:
    """What one replica holds of requests of one size."""

    low: float
    """Requests at the low end of what is available."""
    expected: float
    lacks_bytes: int
    """Bytes on one GPU that are missing for the count wanted, at the expected values; 0 where it is held."""
    spare_bytes: int
    """Bytes on one GPU that are left then."""


class Judge:
    """Predicts candidates of one release."""

    def __init__(
        self, release: Release, without: frozenset[str] = frozenset(), draft: ModelShape | None = None
    ) -> None:
        self._release, self._without, self._draft = release, without, draft
        self._rules = rules_for(release)
        self._classes: dict[str, tuple[object, ...]] = {}
        self._resolved: dict[tuple[object, ...], tuple[Settings, BackendChoice]] = {}
        self.judged = 0

    def __call__(self, shape: ModelShape, args: EngineArgs, device: Device, gpus: int) -> Prediction:
        """The prediction of ``args`` on ``gpus`` such cards: that of ``predict``."""
        self.judged += 1
        setup = Setup(shape, args, Machine(device, gpus), self._release, self._draft, without=self._without)
        key = (shape, id(args), gpus, *self._class(device))
        known = self._resolved.get(key)
        if known is not None:
            return predict_resolved(setup, *known)
        found = predict(setup)
        if found.settings is not None and found.backend is not None:
            self._resolved[key] = found.settings, found.backend
        return found

    def _class(self, device: Device) -> tuple[object, ...]:
        """What of a card decides settings and backend."""
        found = self._classes.get(device.id)
        if found is None:
            tier = repr(device_tier(device, self._rules))
            found = (device.vendor, device.compute_capability, device.unified, tier)
            if device.id:
                self._classes[device.id] = found
        return found


def room_of(found: Prediction, length: int, count: int) -> Room:
    """How many requests of ``length`` tokens one replica of ``found`` holds, and what it lacks for ``count``."""
    layout, pool, ledger = found.layout, found.pool, found.ledger
    if layout is None or pool is None or ledger is None:
        return Room(0.0, 0.0, 0, 0)
    if not layout.groups:
        enough = ledger.available.low >= 0
        return Room(math.inf if enough else 0.0, math.inf, max(0, -ledger.available.expected), 0)
    blocks = layout.request_blocks(length) * count
    wanted = blocks * layout.bytes_per_block
    if found.verdict.status is Status.FAILS:
        missing = max(wanted, pool.needed_bytes) - ledger.available.expected
        return Room(0.0, 0.0, max(missing, 1), 0)
    low = 0.0 if found.pool_low is None or not found.pool_low.fits else _held(found, found.pool_low, length)
    expected = _held(found, pool, length) if pool.fits else 0.0
    left = pool.num_blocks * layout.bytes_per_block - wanted
    return Room(low, expected, max(0, -left), max(0, left))


def _held(found: Prediction, pool: Pool, length: int) -> float:
    layout = found.layout
    assert layout is not None
    if length == pool.max_model_len:
        return pool.max_concurrency
    return pool.max_concurrency * layout.request_blocks(pool.max_model_len) / layout.request_blocks(length)
