"""Which remedies to offer, in which order, and one command that starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status
from kvroom.remedies import flags, hardware
from kvroom.remedies.remedy import Impossible, Remedy

GROUPS = (
    (flags.other_backend, flags.fewer_sequences, flags.fewer_batched_tokens, flags.valid_parallelism),
    (flags.shorter_context, flags.more_utilisation, flags.blocks_within_reach),
    (flags.fp8_cache, flags.no_images, flags.eager),
    (hardware.quantised_weights, hardware.more_gpus, hardware.bigger_card, flags.offload),
)
"""Cheapest first: what costs nothing anyone asked for, limits, trades, other hardware or checkpoints."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Remedies, cheapest first; what was left out and why; the changes that together start."""

    remedies: tuple[Remedy, ...] = ()
    """Each alone makes the launch start, or lifts it out of certain failure."""
    impossible: tuple[Impossible, ...] = ()
    combined: tuple[tuple[str, object], ...] = ()
    """Argument names and values of one launch that starts; empty when it starts as it is or none does."""
    after: Prediction | None = None
    """The prediction of that launch."""
    offers: tuple[Remedy, ...] = ()
    """Every remedy that was priced, also those that do not suffice alone."""


def advise(before: Prediction) -> Advice:
    """What to change so that the launch starts; nothing when it surely does.

    Within a price group, what makes it fit comes before what only may.
    """
    if before.verdict.status is Status.FITS:
        return Advice()
    impossible: list[Impossible] = []
    groups: list[list[Remedy]] = []
    for candidates in GROUPS:
        found = [offer for candidate in candidates for offer in candidate(before)]
        impossible += [offer for offer in found if isinstance(offer, Impossible)]
        groups.append([offer for offer in found if isinstance(offer, Remedy)])
    useful = [remedy for group in groups for remedy in sorted(group, key=_rank) if _rank(remedy) < _room(before)]
    cheap = [remedy for group in groups[:3] for remedy in group]
    combined, after = _combine(before, cheap)
    offers = tuple(remedy for group in groups for remedy in group)
    return Advice(tuple(useful), tuple(impossible), combined, after, offers)


def _room(prediction: Prediction) -> int:
    """0 when it surely starts, 1 when it should, 2 when it may, 3 when it fails."""
    status, pool = prediction.verdict.status, prediction.pool
    if status is Status.FITS:
        return 0
    if status is Status.FAILS:
        return 3
    return 1 if pool is not None and pool.fits else 2


def _rank(remedy: Remedy) -> int:
    return _room(remedy.after)


def _combine(before: Prediction, cheap: Sequence[Remedy]) -> tuple[tuple[tuple[str, object], ...], Prediction | None]:
    """The first single change that fits, else cheap ones piled up until they do, else the best pile."""
    for remedy in cheap:
        if _rank(remedy) == 0:
            return remedy.changes, remedy.after
    changes: dict[str, object] = {}
    after: Prediction | None = None
    for remedy in cheap:
        if "max_model_len" in dict(remedy.changes):
            continue
        changes.update(remedy.changes)
        after = predict(before.setup.with_args(**changes))
        if after.verdict.status is Status.FITS:
            return tuple(changes.items()), after
    for shorter in flags.shorter_context(after or before):
        if isinstance(shorter, Remedy) and _rank(shorter) == 0:
            return (*changes.items(), *shorter.changes), shorter.after
    if after is not None and _room(after) < _room(before):
        return tuple(changes.items()), after
    for remedy in cheap:
        if _rank(remedy) < _room(before):
            return remedy.changes, remedy.after
    return (), None
