"""What was measured on one machine says of the loads that were not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kvroom.errors import UsageError

_FADES = 0.8
"""How fast a measured factor loses its say on other loads; of 0.15, 0.3, 0.5, 0.8 and 1.5 it brings the public runs
nearest that were not measured (``python -m benchmarks.throughput``)."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What one measured run on this machine says: times are so many times the predicted ones."""

    factor: float = 1.0
    measured: bool = False
    near: float = 0.0
    """Seconds for each token of the load that was measured, as predicted without it."""

    def at(self, tpot: float) -> Scale:
        """What it says of a load for which ``tpot`` seconds are predicted: less, the further that is."""
        if not self.near or not tpot:
            return self
        says = math.exp(-_FADES * abs(math.log(tpot / self.near)))
        return replace(self, factor=self.factor**says)


def believable(factor: float, near: float, what: str) -> Scale:
    """The scale of ``factor`` on ``near`` seconds; UsageError where nobody's machine is so far from the roofline."""
    if not 0.05 < factor < 20:
        raise UsageError(
            f"{what[:1].upper()}{what[1:]} comes to {factor:.3g} times what is predicted.",
            "Check the unit, and that it was measured on this card, model and load.",
        )
    return Scale(factor, measured=True, near=near)
