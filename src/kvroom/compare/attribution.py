"""Which setting moved an entry: GOOD predicted with one thing after the other switched to BAD's value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvroom.compare.comparison import NOISE, SettingRow
from kvroom.compare.figures import ledger_of_prediction, pool_of_prediction
from kvroom.compare.sides import argument_names
from kvroom.errors import KvroomError
from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.setup import Setup
from kvroom.vllm.args import EngineArgs

_SHOWN_AS = {
    "cudagraph_capture_sizes": "cudagraph_mode",
    "max_cudagraph_capture_size": "cudagraph_mode",
    "compilation_mode": "cudagraph_mode",
}
"""Arguments without a row of their own."""
_GREATEST, _LEAST = 2.0, 0.5
"""What share of the observed change a prediction of it may be."""


@dataclass(frozen=True, slots=True)
class Switched:
    """What the rules say that one difference does to GOOD."""

    name: str
    """The setting's row."""
    after: Prediction

    def change(self, before: Prediction, entry: str) -> float | None:
        """By how much the entry moves; None where one of the two does not get so far."""
        then, now = figure_of(before, entry), figure_of(self.after, entry)
        return None if then is None or now is None else now - then


def figure_of(prediction: Prediction, entry: str) -> float | None:
    """The predicted value of a ledger or pool entry."""
    found = {**pool_of_prediction(prediction), **ledger_of_prediction(prediction)}.get(entry)
    return found.value if found else None


def switches(good: Prediction, bad: Prediction, rows: Sequence[SettingRow]) -> list[Switched]:
    """GOOD with each difference from BAD on its own, in the order of ``rows``."""
    differing = {row.name for row in rows if row.differs}
    present = {row.name for row in rows}
    found: dict[str, Prediction] = {}
    for name, setup in _switched(good.setup, bad.setup):
        row = name if name in present else _SHOWN_AS.get(name, name)
        if row in present and row not in differing:
            continue  # the same in effect, or unknown in one log
        try:
            after = predict(setup)
            if after.ledger is None:  # the backend of one card or release may not exist on the other
                args = replace(setup.args, attention_backend=bad.setup.args.attention_backend)
                after = predict(replace(setup, args=args))
            found.setdefault(row, after)
        except (KvroomError, ArithmeticError):
            continue
    order = [row.name for row in rows]
    ranked = sorted(found, key=lambda name: order.index(name) if name in order else len(order))
    return [Switched(name, found[name]) for name in ranked]


def culprit(
    good: Prediction, candidates: Sequence[Switched], entry: str, observed: float, noise: float = NOISE
) -> tuple[Switched, float] | None:
    """The difference whose predicted change of ``entry`` accounts for the observed one, with that change."""
    best: tuple[Switched, float] | None = None
    for candidate in candidates:
        change = candidate.change(good, entry)
        if not change or change * observed <= 0:
            continue
        share = change / observed
        if not (_LEAST <= share <= _GREATEST or abs(change - observed) < noise):
            continue
        if best is None or abs(change - observed) < abs(best[1] - observed):
            best = candidate, change
    return best


def _switched(good: Setup, bad: Setup) -> Iterator[tuple[str, Setup]]:
    if good.release != bad.release:
        yield "version", replace(good, release=bad.release)
    if good.shape != bad.shape:
        yield "model", replace(good, shape=bad.shape, args=replace(good.args, model=bad.args.model))
    ours, theirs = good.machine, bad.machine
    if ours.device != theirs.device:
        other = replace(ours, device=theirs.device)
        yield ("total_bytes" if ours.device.name == theirs.device.name else "device"), replace(good, machine=other)
    machine = replace(ours, count=max(ours.count, theirs.count))
    for name in sorted(argument_names()):
        value = getattr(bad.args, name)
        if getattr(good.args, name) != value:
            args = replace(good.args, **{name: value}, given=_given(good.args, bad.args, name))
            draft = bad.draft if name == "speculative_config" else good.draft
            yield name, replace(good, args=args, machine=machine, draft=draft)
    for name in sorted(good.args.env.keys() | bad.args.env.keys()):
        if good.args.env.get(name) != bad.args.env.get(name):
            env = {**good.args.env, name: bad.args.env[name]} if name in bad.args.env else dict(good.args.env)
            if name not in bad.args.env:
                env.pop(name, None)
            yield name, replace(good, args=replace(good.args, env=env))


def _given(good: EngineArgs, bad: EngineArgs, name: str) -> dict[str, object]:
    given = dict(good.given)
    if name in bad.given:
        given[name] = bad.given[name]
    else:
        given.pop(name, None)
    return given
