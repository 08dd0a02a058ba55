"""The inverse: which packaged models run on the GPUs that are there, and at which context."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvroom.devices.device import Machine
from kvroom.errors import KvroomError
from kvroom.ledger.predict import Prediction, Setup, predict
from kvroom.ledger.verdict import Status
from kvroom.models.catalogue import index
from kvroom.models.shape import ModelShape
from kvroom.plans.model import find_model
from kvroom.sizing.judge import Judge, room_of
from kvroom.sizing.layouts import Layout, layouts
from kvroom.sizing.problem import NATIVE
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release

LEAST = 2048
"""A context below this is not told as one that fits."""


@dataclass(frozen=True, slots=True)
class Fit:
    """One model on the GPUs that are there."""

    model: str
    params: int
    layout: Layout
    weights: str
    kv: str
    context: int
    """The longest context, for all requests at once, that surely fits."""
    limit: int
    """What the model itself takes."""
    tokens: tuple[str, ...]


def packaged() -> tuple[str, ...]:
    """Every packaged model."""
    return tuple(index())


def fits(
    machine: Machine,
    release: Release,
    *,
    models: Iterable[str] | None = None,
    concurrency: int = 1,
    context: int | None = None,
    weights: tuple[str, ...] = (NATIVE, "w4a16"),
    per_node: int = 8,
) -> tuple[Fit, ...]:
    """What runs on ``machine`` with ``concurrency`` requests at once, largest models first.

    For each model the first of ``weights`` that reaches ``context`` (without one: any usable length), spread in the
    way that holds most. Models that make no text, and those that the release refuses, are left out.
    """
    found = []
    for name in models if models is not None else packaged():
        try:
            best = _best(name, machine, release, concurrency, context, weights, per_node)
        except KvroomError:
            continue
        if best is not None:
            found.append(best)
    return tuple(sorted(found, key=lambda fit: (-fit.params, fit.model)))


def _best(
    name: str,
    machine: Machine,
    release: Release,
    concurrency: int,
    context: int | None,
    weights: tuple[str, ...],
    per_node: int,
) -> Fit | None:
    shape, _ = find_model(name, offline=True)
    if shape.is_pooling or shape.is_encoder_decoder or not shape.caches:
        return None
    judge = Judge(release)
    for stored in weights if shape.quantization is None else (NATIVE,):
        other = shape if stored == NATIVE else find_model(name, offline=True, assumed=stored)[0]
        best: Fit | None = None
        for way in sorted(layouts(shape, machine.count, per_node), key=lambda way: (way.pp, way.dp)):
            if best is not None and (way.pp > 1 or best.context == best.limit):
                break
            fit = _fit(name, other, stored, way, judge, machine, release, concurrency, context)
            if fit is not None and (best is None or fit.context > best.context):
                best = fit
        if best is not None:
            return best
    return None


def _fit(
    name: str,
    shape: ModelShape,
    stored: str,
    way: Layout,
    judge: Judge,
    machine: Machine,
    release: Release,
    concurrency: int,
    context: int | None,
) -> Fit | None:
    """The longest context of one way to spread a model, None where it is too short."""
    each = -(-concurrency // way.dp)
    words = (name, "--max-num-seqs", str(each), *way.flags())
    args = parse_serve_args(words, {}, release=release)
    first = judge(shape, args, machine.device, way.gpus)
    if first.settings is None or first.ledger is None or first.ledger.available.low <= 0:
        return None
    limit = first.settings.derived_max_model_len
    least = context or min(LEAST, limit)
    if least > limit:
        return None
    setup = Setup(shape, args, machine, release)
    length = _longest(setup, first, each, limit)
    if length < least:
        return None
    return Fit(name, shape.total_params, way, stored, "auto", length, limit, (*words, "--max-model-len", str(length)))


def _longest(setup: Setup, first: Prediction, each: int, limit: int) -> int:
    """The longest context at which ``each`` requests surely fit, a whole number of blocks or the model's limit.

    Found by halving: every length tried is a launch that the ledger predicts.
    """
    if _holds(setup, limit, each):
        return limit
    step = max(first.layout.block_size if first.layout is not None else 16, 256)
    low, high = 0, -(-limit // step)
    while high - low > 1:
        middle = (low + high) // 2
        if _holds(setup, min(limit, middle * step), each):
            low = middle
        else:
            high = middle
    return low * step


def _holds(setup: Setup, length: int, each: int) -> bool:
    found = predict(setup.with_args(max_model_len=length))
    return found.verdict.status is Status.FITS and room_of(found, length, each).low >= each
