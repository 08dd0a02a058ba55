"""Trials as processes of this machine, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvroom.trials.figures import Measures
from kvroom.trials.launch import Done, Order, Watch, carry_out
from kvroom.trials.memory import Memory


@dataclass(frozen=True, slots=True)
class LocalLauncher:
    """Starts each server under the guard."""

    measure: Measures
    memory: Callable[[], Memory]
    width: int = 1

    def carry_out(self, orders: Sequence[Order], watch: Watch) -> list[Done]:
        """One launch after the other."""
        return [carry_out(order, self.measure, self.memory(), watch) for order in orders]
