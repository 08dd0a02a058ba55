"""The nearest measurement for a launch, and what of it holds there.

The same machine, release and model: every entry, moved by what the changed flags move. Another model: what does
not depend on it. Another card or release: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvroom.errors import KvroomError, StoreError
from kvroom.learned.key import EXACT, changes, fingerprint, logged_args, world
from kvroom.learned.measurement import Measurement
from kvroom.learned.store import Store, store_path
from kvroom.ledger.budget import ledger_of
from kvroom.ledger.setup import Setup
from kvroom.units import GIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.backends import choose_backend
from kvroom.vllm.defaults import resolve
from kvroom.vllm.rules import rules_for
from kvroom.vllm.settings import Settings

_ENTRIES = ("weights", "activation", "other", "cuda_graphs", "available")
_SAME_TOTAL = 0.005
"""How far two totals of one card may lie apart, of it: drivers keep more or less."""
_SAME_CARD = 0.1
"""The same from the catalogue's total: what lies further is of another card, or was never measured."""
_REPEATS = int(0.04 * GIB)
"""Bytes within which four of five starts lie of another one with the same settings (124 pairs of public logs)."""
_REPEATS_SHARED = int(3.5 * GIB)
"""The same where the CPU has the same memory: two starts on a GB10 within the hour left 40.61 and 44.03 GiB."""
_LOOKED_AT = 100
"""Launches of one model on one machine, the newest, among which the nearest is looked for."""
_CHEAP, _DEAR, _WITHOUT_AVAILABLE = 1, 4, 6
"""How much further a measurement is for a changed argument whose effect is arithmetic, for another, and where
what was left for the cache is not known."""


@dataclass(frozen=True, slots=True)
class Near:
    """A measurement of the same machine, release and model."""

    measurement: Measurement
    args: EngineArgs
    """Of the launch that was measured."""
    changed: tuple[str, ...]
    """The arguments in which it differs."""

    @property
    def distance(self) -> int:
        """How little it says of the launch in question, 0 for the same settings."""
        far = sum(_CHEAP if name in EXACT else _DEAR for name in self.changed)
        return far if "available" in self.measurement.sizes else far + _WITHOUT_AVAILABLE


def with_store(setup: Setup) -> tuple[Setup, tuple[str, ...]]:
    """``setup`` with what the user's store holds for it, and notes; a store that cannot be read is one of them."""
    try:
        kept = Store(store_path()).every(gpu=setup.machine.device.name, vllm=str(setup.release))
    except StoreError as error:
        return setup, (f"{error.problem} The plan does without.",)
    return with_learned(setup, kept)


def with_learned(setup: Setup, kept: Sequence[Measurement]) -> tuple[Setup, tuple[str, ...]]:
    """``setup`` with the nearest of ``kept``, the newest of equals, and a note on what it is."""
    here = [each for each in kept if _is_here(each, setup)]
    if not here:
        return setup, ()
    try:
        settings = resolve(setup.args, setup.shape, setup.machine, rules_for(setup.release))
    except KvroomError:
        return setup, ()  # refused before any memory is looked at
    sized = _sized(setup, here)
    for near in sorted(_near(setup, settings, here), key=lambda near: near.distance):
        measured = {name: near.measurement.sizes[name] for name in _ENTRIES if name in near.measurement.sizes}
        logged = near.args if near.changed else None
        repeats = _REPEATS_SHARED if setup.machine.device.unified else _REPEATS
        found = replace(sized, measured=measured, logged_args=logged, repeats=repeats)
        if measured and _stands(found, settings):
            return found, (_said(near, measured),)
    return _of_another_model(setup, sized, settings, here)


def _is_here(kept: Measurement, setup: Setup) -> bool:
    """Whether it was measured on such a machine with that release."""
    device = setup.machine.device
    if (kept.gpu, kept.release) != (device.name, setup.release):
        return False
    total = kept.sizes.get("total", device.total_bytes)
    if max(kept.sizes.values()) > max(total, device.total_bytes):
        return False  # an import may say anything
    # a total that was given or probed tells machines apart; the catalogue's does not, if it is nearly that
    apart = _SAME_TOTAL if device.basis == "measured" else _SAME_CARD
    return abs(total - device.total_bytes) <= apart * device.total_bytes


def _sized(setup: Setup, here: Sequence[Measurement]) -> Setup:
    """``setup`` on a card with the total that torch reported there."""
    total = next((each.sizes["total"] for each in here if each.sizes.get("total")), None)
    if total is None:
        return setup
    device = replace(setup.machine.device, total_bytes=total, total_low=total, total_high=total, basis="measured")
    return replace(setup, machine=replace(setup.machine, device=device))


def _near(setup: Setup, settings: Settings, here: Sequence[Measurement]) -> Iterator[Near]:
    shape, gpus = fingerprint(setup.shape, setup.draft), world(setup.args)
    of_it = [kept for kept in here if (kept.shape, kept.gpus) == (shape, gpus)]
    newest = {(kept.words, *kept.env.items()): kept for kept in reversed(of_it)}
    for kept in list(reversed(newest.values()))[:_LOOKED_AT]:
        then = logged_args(kept.words, kept.env, setup.args, setup.release)
        if then is not None and world(then) == gpus:
            yield Near(kept, then, changes(then, setup.args, settings))


def _stands(setup: Setup, settings: Settings) -> bool:
    """Whether the ledger can be told from it: the rules may refuse what was started once."""
    try:
        backend = choose_backend(setup.shape, setup.args, settings, setup.machine.device, without=setup.without)
        if backend.error:
            return False
        for stage in range(setup.args.pipeline_parallel_size):
            ledger_of(setup, settings, backend, stage)
    except KvroomError:
        return False
    return all(abs(size) <= setup.machine.device.total_high for size in setup.measured.values())


def _of_another_model(
    setup: Setup, sized: Setup, settings: Settings, here: Sequence[Measurement]
) -> tuple[Setup, tuple[str, ...]]:
    """What does not depend on the model: the card's total, and what is no tensor under the same backend."""
    try:
        backend = choose_backend(setup.shape, setup.args, settings, setup.machine.device, without=setup.without)
    except KvroomError:
        return setup, ()
    gpus = world(setup.args)
    alike = [each for each in here if each.gpus == gpus and each.backend == backend.name and "other" in each.sizes]
    said = []
    if sized is not setup:
        said.append(f"the card's total ({sized.machine.device.total_bytes / GIB:.2f} GiB)")
    if alike:
        sized = replace(sized, measured={"other": alike[0].sizes["other"]})
        said.append("what is no tensor (other)")
    if not said:
        return setup, ()
    kept = alike[0] if alike else next(each for each in here if each.sizes.get("total"))
    return sized, (f"From a log of such a machine with {kept.model} ({_name(kept)}): {' and '.join(said)}.",)


def _said(near: Near, measured: dict[str, int]) -> str:
    kept = near.measurement
    what = f"From a log of such a machine, release and model ({_name(kept)}): {', '.join(measured)}"
    if not near.changed:
        return f"{what}, with these settings."
    changed = ", ".join(name if name.startswith("env ") else "--" + name.replace("_", "-") for name in near.changed[:6])
    more = f" and {len(near.changed) - 6} more" if len(near.changed) > 6 else ""
    return f"{what}, moved by what differs: {changed}{more}."


def _name(kept: Measurement) -> str:
    return f"learned {kept.learned[:10]}, {kept.id}; --no-learned plans without"
