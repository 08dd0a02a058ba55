"""When each stage began and how long it took, as far as the log's clock tells."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.logs.facts import Facts
from kvroom.logs.stages import STAGES, rank

_SAID = {
    "weights_read": "weight_load",
    "compile_total": "compile",
    "graph_done": "graph_capture",
    "download": "model_resolve",
}
"""Messages that say how long a stage took."""


@dataclass(frozen=True, slots=True)
class Step:
    """One stage on the clock."""

    stage: str
    line: int
    at: float
    """Seconds after the first time in the log."""
    seconds: float | None
    """How long it took: as printed, else until the next stage began; None for the last."""


def timeline_of(facts: Facts) -> tuple[Step, ...]:
    """The stages in the order in which they began."""
    begun: dict[str, tuple[int, float]] = {}
    for fact in facts:
        if fact.time is not None and fact.role in {"reached", "passed"} and rank(fact.stage) >= 0:
            begun.setdefault(fact.stage, (fact.line, fact.time))
    if not begun:
        return ()
    start = min(time for _, time in begun.values())
    said = {_SAID[fact.id]: fact.number("seconds") for fact in facts.all(*_SAID)}
    order = sorted(begun, key=lambda stage: (begun[stage][1], STAGES.index(stage)))
    steps = []
    for stage, after in zip(order, [*order[1:], None], strict=True):
        line, time = begun[stage]
        lasted = said.get(stage)
        if lasted is None and after is not None:
            lasted = begun[after][1] - time
        steps.append(Step(stage, line, time - start, lasted))
    return tuple(steps)
