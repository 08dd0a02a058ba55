"""What the ledger says of a trial before it is launched, from the rules and from what this run measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from kvroom.devices.device import Device, Machine
from kvroom.doctor.diagnosis import Diagnosis
from kvroom.doctor.learn import lesson
from kvroom.errors import KvroomError
from kvroom.learned.apply import with_learned
from kvroom.learned.measurement import Measurement
from kvroom.ledger.predict import Prediction, Setup, predict
from kvroom.ledger.verdict import Status
from kvroom.models.shape import ModelShape
from kvroom.plans.make import plan_tokens
from kvroom.plans.model import find_model
from kvroom.plans.request import Request
from kvroom.remedies.advise import advise
from kvroom.trials.changes import changes_of
from kvroom.trials.trial import Forecast
from kvroom.units import GIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release

_BLOCK = 128
"""Tokens of a block on the CPU (platforms/cpu.py: check_and_update_config)."""
_UNSEEN = GIB
"""Resident memory of the CPU engine beside its weights before one start was measured, and how far it may be off."""
_REPEATS = GIB // 16
_USUAL = 0.92


class Foresight(Protocol):
    """Something that predicts launches and learns from them."""

    def forecast(self, tokens: Sequence[str], env: Mapping[str, str]) -> Forecast:
        """What becomes of the launch; ``unknown`` where nobody can say. Raises nothing."""

    def learn(self, tokens: Sequence[str], env: Mapping[str, str], diagnosis: Diagnosis) -> bool:
        """Take what a start measured into account; whether there was something."""


class CardForesight:
    """Launches on GPUs: those of ``request``, else the ones here."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._kept: list[Measurement] = []

    def forecast(self, tokens: Sequence[str], env: Mapping[str, str]) -> Forecast:
        """By the plan's own rules, moved by what this run's starts measured."""
        try:
            prediction = plan_tokens(tokens, env, self._request).prediction
            if self._kept:
                setup, _ = with_learned(prediction.setup, self._kept)
                prediction = predict(setup)
        except KvroomError as error:
            return Forecast(message=error.problem)
        return _told(prediction)

    def learn(self, tokens: Sequence[str], env: Mapping[str, str], diagnosis: Diagnosis) -> bool:
        """Keep the start's measurement, as ``kvroom learn`` would."""
        del tokens, env
        found = lesson(diagnosis, datetime.now(UTC))
        if isinstance(found, str):
            return False
        self._kept.append(found)
        return True


@dataclass(frozen=True, slots=True)
class _Start:
    """A start that was measured on the CPU."""

    requested: int
    available: int


class HostForesight:
    """Launches of the CPU build, whose cache is bytes that were asked for, or a share of the machine's memory."""

    def __init__(self, total_bytes: int, free_bytes: Callable[[], int], release: Release, *, offline: bool) -> None:
        self._total = total_bytes
        self._free = free_bytes
        self._release = release
        self._offline = offline
        self._shapes: dict[str, ModelShape] = {}
        self._last: _Start | None = None

    def forecast(self, tokens: Sequence[str], env: Mapping[str, str]) -> Forecast:
        """The planner's arithmetic on the bytes that there will be."""
        try:
            setup, wanted = self._setup(tokens, env)
            prediction = predict(setup)
        except KvroomError as error:
            return Forecast(message=error.problem)
        free = self._free()
        if wanted > free and prediction.verdict.status is not Status.FAILS:
            text = f"{wanted / GIB:.2f} GiB are asked for, and {free / GIB:.2f} GiB of memory are free."
            return replace(_told(prediction), status="fails", stage="device_memory_check", message=text)
        return _told(prediction)

    def learn(self, tokens: Sequence[str], env: Mapping[str, str], diagnosis: Diagnosis) -> bool:
        """Take over what was left for the cache, where it was not asked for in bytes."""
        available = diagnosis.reading.size("available")
        try:
            setup, wanted = self._setup(tokens, env)
        except KvroomError:
            return False
        if available is None or setup.args.kv_cache_memory_bytes is not None:
            return False
        self._last = _Start(wanted, available)
        return True

    def _setup(self, tokens: Sequence[str], env: Mapping[str, str]) -> tuple[Setup, int]:
        """The launch for the ledger, and the bytes of memory that it asks for."""
        args = parse_serve_args(tokens, env, release=self._release)
        shape = self._shape(args)
        device = Device("CPU", "CPU", None, self._total, self._total, self._total, "measured", unified=True)
        space = env.get("VLLM_CPU_KVCACHE_SPACE", "")
        fixed = args.kv_cache_memory_bytes or (int(space) * GIB if space.isdecimal() else 0)
        share = args.gpu_memory_utilization or _USUAL
        args = replace(args, block_size=args.block_size or _BLOCK, kv_cache_memory_bytes=fixed or None)
        measured = {"activation": 0, "cuda_graphs": 0, "other": 0}
        if fixed:
            args = replace(args, gpu_memory_utilization=0.5)  # nothing is reserved by share
            return Setup(shape, args, Machine(device), self._release, measured=measured), fixed
        wanted = int(self._total * share)
        if self._last is not None:
            measured["available"] = self._last.available + wanted - self._last.requested
            return Setup(shape, args, Machine(device), self._release, measured=measured, repeats=_REPEATS), wanted
        plain = predict(Setup(shape, args, Machine(device), self._release, measured=measured))
        if plain.ledger is not None:
            measured["available"] = plain.ledger.available.expected - _UNSEEN
        return Setup(shape, args, Machine(device), self._release, measured=measured, repeats=_UNSEEN), wanted

    def _shape(self, args: EngineArgs) -> ModelShape:
        if args.model not in self._shapes:
            self._shapes[args.model] = find_model(
                args.model, offline=self._offline, revision=args.revision, overrides=args.hf_overrides
            )[0]
        return self._shapes[args.model]


class NoForesight:
    """Nothing is known, so everything is launched."""

    def forecast(self, tokens: Sequence[str], env: Mapping[str, str]) -> Forecast:
        """Nothing."""
        del tokens, env
        return Forecast()

    def learn(self, tokens: Sequence[str], env: Mapping[str, str], diagnosis: Diagnosis) -> bool:
        """Nothing."""
        del tokens, env, diagnosis
        return False


def _told(prediction: Prediction) -> Forecast:
    verdict, pool, ledger = prediction.verdict, prediction.pool, prediction.ledger
    remedies = []
    if verdict.status is Status.FAILS:
        release = prediction.setup.release
        for remedy in advise(prediction).remedies:
            changes = changes_of(remedy.flags, release) if remedy.flags else None
            if changes:
                remedies.append(changes)
    return Forecast(
        status=str(verdict.status),
        stage=verdict.stage,
        message=verdict.message,
        available_bytes=ledger.available.expected if ledger else None,
        needed_bytes=pool.needed_bytes if pool else None,
        kv_tokens=pool.tokens if pool else None,
        longest=pool.longest_context if pool else None,
        basis=str(ledger.available.basis) if ledger else "",
        remedies=tuple(remedies),
    )
