"""The answer to a need: options in order, what comes near, and how much was searched."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.sizing.option import Option
from kvroom.sizing.prices import Prices
from kvroom.sizing.problem import Problem
from kvroom.sizing.search import Found, nearness, pareto, priced

_NEAR = 3


@dataclass(frozen=True)
class Answer:
    """What a search found, ready to be told."""

    problem: Problem
    prices: Prices
    found: Found
    options: tuple[Option, ...]
    """Cheapest first; those that another beats are left out."""
    nearest: tuple[Option, ...]
    """What would be cheaper than the cheapest but misses, nearest first; without options, what comes nearest."""
    cards: int


def answer_of(problem: Problem, found: Found, prices: Prices, cards: int) -> Answer:
    """The answer that ``found`` gives under ``prices``."""
    found = priced(found, prices)
    options = pareto(found.options)
    misses = sorted(found.misses, key=lambda option: nearness(option, problem))
    if options:
        cheapest = options[0].cost
        misses = [miss for miss in misses if miss.cost < cheapest]
    return Answer(problem, prices, found, options, tuple(misses[:_NEAR]), cards)
