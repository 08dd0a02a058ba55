"""What one log of a machine makes of the next launch on it: ``python -m benchmarks.learned --corpus DIR``.

Of every two launches of a corpus (laid out as ``benchmarks.accuracy`` reads it) on one card, with one total, number
of GPUs, release and model, each is predicted from what the other logged. The bytes left for the KV cache are held
against its own log, before and after learning.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import accuracy
from benchmarks.accuracy_score import percentile
from benchmarks.launches import Launch
from kvroom.errors import KvroomError
from kvroom.learned.apply import with_learned
from kvroom.learned.key import changes, fingerprint, kept_env, kept_words, logged_args, world
from kvroom.learned.measurement import Measurement
from kvroom.ledger.predict import Prediction, predict
from kvroom.units import GIB

_SIZES = {"weights": "weights", "activation": "activation", "other": "non_torch", "available": "kv_available"}
_EVERYDAY = {"max_model_len", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens"}
"""Length, utilisation and concurrency: what people change from start to start."""
_AIM = 0.1
"""GiB within which one log must bring another launch of its machine."""


@dataclass(frozen=True, slots=True)
class Start:
    """A launch with its prediction and what it logged, as it would be kept."""

    launch: Launch
    prediction: Prediction
    kept: Measurement

    @property
    def machine(self) -> tuple[object, ...]:
        """What two launches must share, beside the card's total where both logged it."""
        return self.kept.gpu, self.kept.gpus, self.kept.release, self.kept.shape

    def is_with(self, other: Start) -> bool:
        """Whether both are of one machine and model."""
        totals = {round(each.kept.sizes["total"] / GIB, 2) for each in (self, other) if "total" in each.kept.sizes}
        return self.machine == other.machine and len(totals) < 2


@dataclass(frozen=True, slots=True)
class Pair:
    """A launch predicted from another's log; errors in GiB, predicted less logged."""

    start: Start
    of: Start
    changed: tuple[str, ...]
    before: float
    after: float

    @property
    def apart(self) -> float:
        """GiB by which the two logs differ in what was available."""
        sizes = self.start.kept.sizes, self.of.kept.sizes
        return (sizes[0]["available"] - sizes[1]["available"]) / GIB


def starts(corpus: Path) -> Iterator[Start]:
    """The launches that logged what was available, and can be predicted."""
    totals = _totals(corpus)
    for launch in accuracy.asked(corpus):
        if not isinstance(launch, Launch):
            continue
        sizes = {name: launch.observed.get(f"{logged}_gib") for name, logged in _SIZES.items()}
        sizes["total"] = totals.get(launch.id) or launch.observed.get("total_gpu_gib")
        if sizes["available"] is None:
            continue
        try:
            prediction = launch.plan().prediction
        except KvroomError:
            continue
        if prediction.settings is None or prediction.ledger is None or prediction.backend is None:
            continue
        setup = prediction.setup
        kept = Measurement(
            gpu=setup.machine.device.name,
            gpus=world(setup.args),
            release=setup.release,
            model=setup.args.model,
            shape=fingerprint(setup.shape, setup.draft),
            words=kept_words(setup.args, prediction.settings, setup.release),
            env=kept_env(setup.args.env),
            backend=prediction.backend.name,
            sizes={name: int(size * GIB) for name, size in sizes.items() if size is not None},
            learned="2026-01-01T00:00:00+00:00",
        )
        yield Start(launch, prediction, kept)


def _totals(corpus: Path) -> dict[str, float]:
    """The total that torch reported, by the id of a row of the series, from the nine tenths that were requested."""
    path = corpus / "started-series.csv"
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = enumerate(csv.DictReader(file), 2)
        return {f"series:{number}": float(row["requested"]) / 0.9 for number, row in rows if row["requested"]}


def pairs(every: Sequence[Start]) -> Iterator[Pair]:
    """Every launch from every other of its machine."""
    for start, of in itertools.permutations(every, 2):
        if not start.is_with(of):
            continue
        setup = start.prediction.setup
        found = predict(with_learned(setup, [of.kept])[0])
        then = logged_args(of.kept.words, of.kept.env, setup.args, setup.release)
        if found.ledger is None or not found.setup.measured or then is None or start.prediction.settings is None:
            continue
        changed = changes(then, setup.args, start.prediction.settings)
        logged = start.kept.sizes["available"]
        assert start.prediction.ledger is not None
        before = start.prediction.ledger.available.expected - logged
        yield Pair(start, of, changed, before / GIB, (found.ledger.available.expected - logged) / GIB)


def _summary(name: str, found: Sequence[Pair]) -> str:
    if not found:
        return f"{name}: no pair"
    row = [f"{name}: {len(found)} pairs of {len({pair.start.machine for pair in found})} machines and models"]
    for when in ("before", "after"):
        errors = [abs(getattr(pair, when)) for pair in found]
        within = sum(error <= _AIM + 0.005 for error in errors) / len(errors)  # logged with two decimals
        row.append(f"{when} median {median(errors):.3f} worst {max(errors):.2f} GiB, within {_AIM} {within:.1%}")
    return "; ".join(row)


def _repeats(own: Sequence[Pair]) -> str:
    """How far two starts with the same settings lie apart, which is the interval of what was learned."""
    apart = sorted(abs(pair.apart) for pair in own if not pair.changed)
    if not apart:
        return "same settings: no pair"
    most = percentile(apart, 0.8)
    return f"same settings: {len(apart)} pairs, four of five within {most:.2f}, worst {apart[-1]:.2f} GiB"


def main() -> int:
    """Print a line for each kind of change, and its worst pairs; 1 where an everyday one is off.

    Memory that the CPU shares moves from minute to minute, so those pairs are apart.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--worst", type=int, default=10, help="how many pairs to show of each kind")
    asked = parser.parse_args()
    found = list(pairs(list(starts(asked.corpus))))
    shared = [pair for pair in found if pair.start.prediction.setup.machine.device.unified]
    own = [pair for pair in found if not pair.start.prediction.setup.machine.device.unified]
    everyday = [pair for pair in own if set(pair.changed) <= _EVERYDAY]
    other = [pair for pair in own if not set(pair.changed) <= _EVERYDAY]
    kinds = {"length, utilisation, concurrency": everyday, "other flags as well": other, "unified memory": shared}
    print(_repeats(own))
    for name, group in kinds.items():
        print(_summary(name, group))
        for pair in sorted(group, key=lambda pair: -abs(pair.after))[: asked.worst]:
            what = f"({pair.start.kept.model}): {', '.join(pair.changed) or 'nothing'} changed"
            print(f"  {pair.after:+.2f} GiB  {pair.start.launch.id} from {pair.of.launch.id} {what}")
    return int(any(abs(pair.after) > _AIM + 0.005 for pair in everyday))


if __name__ == "__main__":
    sys.exit(main())
