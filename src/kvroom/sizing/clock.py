"""How fast a candidate of a search is under the need, by the throughput model."""

from __future__ import annotations

from kvroom.errors import KvroomError
from kvroom.ledger.predict import Prediction
from kvroom.sizing.need import Need
from kvroom.sizing.option import Speed
from kvroom.throughput.card import known
from kvroom.throughput.estimate import Load, engine_of, steady
from kvroom.throughput.factors import fitted


def clock(prediction: Prediction, need: Need) -> Speed | None:
    """The figures of ``prediction`` with the need's requests at once; None where the card's rates are not known."""
    if not known(prediction.setup.machine.device):
        return None
    try:
        engine = engine_of(prediction)
    except KvroomError:  # it makes no text
        return None
    ttft, tpot, rate = steady(engine, Load(need.prompt, need.answer), need.concurrency)
    low, high = fitted().tpot
    meets = (need.ttft is None or ttft <= need.ttft) and (need.tpot is None or tpot <= need.tpot)
    if need.rate is not None:
        meets = meets and rate >= need.rate * need.answer
    return Speed(ttft, tpot, tpot * low, tpot * high, rate, meets)
