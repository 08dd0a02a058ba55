"""The memory ledger: one line a part of the budget, each with its uncertainty and its basis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

WIDER = 1.96 / 1.2816
"""How much wider than the interval of 80 of 100 that of 95 is, where errors are normal."""


class Basis(StrEnum):
    """Where a number comes from, from the strongest to the weakest."""

    MEASURED = "measured"
    """Read from a log, a running engine or this machine's GPU."""
    PUBLISHED = "published"
    """A checkpoint's own header or a figure logged on the same card."""
    COMPUTED = "computed"
    """An exact rule of that vLLM release."""
    TRACED = "traced"
    """vLLM's own code, run without a GPU."""
    ESTIMATED = "estimated"
    """A fitted term."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger, in bytes per GPU."""

    name: str
    """``requested``, ``weights``, ``activation``, ``other``, ``cuda_graphs`` or ``available``."""
    low: int
    expected: int
    high: int
    basis: Basis
    why: str
    """One sentence: what the number is made of."""
    source: str = ""
    """The rule's place in vLLM, or the runs that a fitted term rests on."""
    cause: str = ""
    """Of an activation peak: the phase that decides it, ``sampler``, ``forward`` or ``encoder``."""
    wide: tuple[int, int] | None = None
    """The interval that holds 95 of 100 launches, where it was measured; ``low`` to ``high`` holds 80."""

    @property
    def spread_down(self) -> int:
        """Bytes by which the truth may lie below ``expected``."""
        return self.expected - self.low

    @property
    def spread_up(self) -> int:
        """Bytes by which the truth may lie above ``expected``."""
        return self.high - self.expected

    @property
    def low95(self) -> int:
        """The low end of the interval that holds 95 of 100 launches, as of a normal error where it was not measured."""
        return self.wide[0] if self.wide is not None else int(self.expected - WIDER * self.spread_down)

    @property
    def high95(self) -> int:
        """The high end of that interval."""
        return self.wide[1] if self.wide is not None else int(self.expected + WIDER * self.spread_up)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The budget of one GPU: ``requested`` less four parts is ``available``.

    Parts are independent, so their spreads add as the root of the sum of squares.
    """

    requested: Entry
    weights: Entry
    activation: Entry
    other: Entry
    cuda_graphs: Entry
    available: Entry

    def __iter__(self) -> Iterator[Entry]:
        """The entries in the order of the subtraction."""
        return iter((self.requested, self.weights, self.activation, self.other, self.cuda_graphs, self.available))

    def entry(self, name: str) -> Entry:
        """The entry called ``name``; KeyError when there is none."""
        for entry in self:
            if entry.name == name:
                return entry
        raise KeyError(name)


def close(requested: Entry, weights: Entry, activation: Entry, other: Entry, cuda_graphs: Entry) -> Ledger:
    """The ledger whose ``available`` follows from its parts (v1/worker/gpu_worker.py: determine_available_memory)."""
    parts = (weights, activation, other, cuda_graphs)
    expected = requested.expected - sum(part.expected for part in parts)
    down = requested.spread_down**2 + sum(part.spread_up**2 for part in parts)
    up = requested.spread_up**2 + sum(part.spread_down**2 for part in parts)
    bases = [entry.basis for entry in (requested, *parts)]
    available = Entry(
        "available",
        int(expected - down**0.5),
        expected,
        int(expected + up**0.5),
        max(bases, key=list(Basis).index),
        "requested less weights, activation, other and CUDA graphs: what is left for KV blocks",
    )
    return Ledger(requested, weights, activation, other, cuda_graphs, available)


def exact(name: str, n_bytes: int, basis: Basis, why: str, source: str = "") -> Entry:
    """An entry without uncertainty."""
    return Entry(name, n_bytes, n_bytes, n_bytes, basis, why, source)
