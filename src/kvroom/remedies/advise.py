"""Which remedies to offer, in which order, and one command that starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status
from kvroom.remedies import hardware, limits, trades
from kvroom.remedies.remedy import Candidates, Impossible, Remedy, room

Candidate = Callable[[Prediction], Candidates]

GROUPS = (
    (
        limits.without_unknown_flags,
        limits.blocks_within_reach,
        limits.enough_batched_tokens,
        limits.valid_parallelism,
        limits.idle_gpus,
        trades.other_backend,
        limits.fewer_sequences,
        limits.fewer_batched_tokens,
    ),
    (limits.shorter_context, limits.more_utilisation),
    (trades.fp8_cache, trades.no_images, trades.eager, trades.fixed_cache),
    (hardware.quantised_weights, hardware.more_gpus, hardware.bigger_card, trades.offload),
)
"""Cheapest first: what costs nothing anyone asked for, limits, trades, other hardware or checkpoints."""
_CLIMBS = (
    (*GROUPS[0], *GROUPS[1], limits.fewer_sequences),
    (*GROUPS[0], trades.no_images, *GROUPS[1], limits.fewer_sequences),
    (*GROUPS[0], *GROUPS[2], *GROUPS[1], limits.fewer_sequences),
)
"""What to pile up when nothing alone suffices: limits, then trades as well; a shorter length bares other wants."""
_ENOUGH = 8192
"""A context of at least this many tokens needs no further change to be worth recommending."""

Changes = tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """Remedies, cheapest first; what was left out and why; the changes that together start."""

    remedies: tuple[Remedy, ...] = ()
    """Each alone makes the launch start, or lifts it out of certain failure."""
    impossible: tuple[Impossible, ...] = ()
    combined: Changes = ()
    """Argument names and values of one launch that starts; empty when it starts as it is or none does."""
    after: Prediction | None = None
    """The prediction of that launch."""
    offers: tuple[Remedy, ...] = ()
    """Every remedy that was priced, also those that do not suffice alone."""


def advise(before: Prediction) -> Advice:
    """What to change so that the launch starts; nothing when it surely does, or when nothing is known to price.

    Within a price group, what makes it fit comes before what only may.
    """
    if before.verdict.status is Status.FITS or (before.verdict.status is Status.UNKNOWN and before.settings is None):
        return Advice()
    impossible: list[Impossible] = []
    groups: list[list[Remedy]] = []
    for candidates in GROUPS:
        found = [offer for candidate in candidates for offer in candidate(before)]
        impossible += [offer for offer in found if isinstance(offer, Impossible)]
        groups.append([offer for offer in found if isinstance(offer, Remedy)])
    useful: list[Remedy] = []
    for group in groups:
        for remedy in sorted(group, key=lambda remedy: room(remedy.after)):
            known = bool(remedy.flags) and any(remedy.flags == other.flags for other in useful)
            if room(remedy.after) < room(before) and not known:
                useful.append(remedy)
    combined, after = _combined(before, groups)
    offers = tuple(remedy for group in groups for remedy in group)
    return Advice(tuple(useful), tuple(impossible), combined, after, offers)


def _combined(before: Prediction, groups: Sequence[Sequence[Remedy]]) -> tuple[Changes, Prediction | None]:
    """The changes to recommend.

    First what keeps the length: one change, then the fewest together. Where nobody asked for the length,
    a shorter one is as good if it is still long; else as much as possible is freed before shortening.
    """
    free, limiting, trading = groups[0], groups[1], groups[2]
    keeping = [*free, *(remedy for remedy in limiting if not _shortens(remedy)), *trading]
    shorter = [remedy for remedy in limiting if _shortens(remedy) and room(remedy.after) == 0]
    if before.setup.args.max_model_len is None and shorter and _length(shorter[0]) >= _ENOUGH:
        single = [remedy for remedy in free if room(remedy.after) == 0]
        chosen = (single or shorter)[0]
        return chosen.changes, chosen.after
    for remedy in keeping:
        if room(remedy.after) == 0:
            return remedy.changes, remedy.after
    for pile in (_piled(before, [*free, *limiting]), _piled(before, keeping)):
        if pile is not None and room(pile) == 0:
            return _fewest(before, pile)
    mild = _piled(before, [*free, *limiting])
    for found in limits.shorter_context(mild or before):
        if (
            isinstance(found, Remedy)
            and room(found.after) == 0
            and (not shorter or _length(found) > _length(shorter[0]))
        ):
            return _fewest(before, found.after)
    if shorter:
        return shorter[0].changes, shorter[0].after
    steps = [_step_by_step(before, candidates) for candidates in _CLIMBS]
    best = min([remedy.after for remedy in keeping] + steps, key=room)
    return _fewest(before, best) if room(best) < room(before) else ((), None)


def _step_by_step(before: Prediction, candidates: Sequence[Candidate]) -> Prediction:
    """The launch that ``candidates`` reach, each asked about what the ones before it have made."""
    now = before
    for candidate in candidates:
        for offer in candidate(now):
            if isinstance(offer, Remedy) and offer.changes and room(offer.after) <= room(now):
                now = offer.after
        if room(now) == 0:
            break
    return now


def _shortens(remedy: Remedy) -> bool:
    return any(name == "max_model_len" for name, _ in remedy.changes)


def _length(remedy: Remedy) -> int:
    value = dict(remedy.changes).get("max_model_len")
    return value if isinstance(value, int) else 0


def _piled(before: Prediction, remedies: Sequence[Remedy]) -> Prediction | None:
    """The launch with one change after the other until it fits; None without any."""
    changes: dict[str, object] = {}
    after: Prediction | None = None
    for remedy in remedies:
        if _shortens(remedy):
            continue
        changes.update(remedy.changes)
        after = predict(before.setup.with_args(**changes))
        if after.verdict.status is Status.FITS:
            break
    return after


def _fewest(before: Prediction, after: Prediction) -> tuple[Changes, Prediction]:
    """The changes from ``before`` to ``after``, without those that are not needed."""
    old, new = before.setup.args, after.setup.args
    changes = {
        name: getattr(new, name)
        for name in new.__dataclass_fields__
        if name not in {"given", "passed"} and getattr(new, name) != getattr(old, name)
    }
    for name in list(changes):
        if name in {"max_model_len", "unknown"}:
            continue
        rest = {other: value for other, value in changes.items() if other != name}
        without = predict(before.setup.with_args(**rest))
        if room(without) <= room(after):
            changes, after = rest, without
    return tuple(changes.items()), after
