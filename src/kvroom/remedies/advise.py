"""Which remedies to offer, in which order, and one command that starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status
from kvroom.remedies import hardware, limits, trades
from kvroom.remedies.remedy import Impossible, Remedy, room

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
    (trades.fp8_cache, trades.no_images, trades.eager),
    (hardware.quantised_weights, hardware.more_gpus, hardware.bigger_card, trades.offload),
)
"""Cheapest first: what costs nothing anyone asked for, limits, trades, other hardware or checkpoints."""
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
    useful = [
        remedy
        for group in groups
        for remedy in sorted(group, key=lambda remedy: room(remedy.after))
        if room(remedy.after) < room(before)
    ]
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
    best = min((remedy for remedy in keeping), key=lambda remedy: room(remedy.after), default=None)
    if mild is not None and room(mild) < room(before) and (best is None or room(mild) < room(best.after)):
        return _fewest(before, mild)
    if best is not None and room(best.after) < room(before):
        return best.changes, best.after
    return (), None


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
