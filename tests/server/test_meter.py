"""When a request is given up: what the server shows, second by second, and since when no token came."""

from __future__ import annotations

import pytest

from kvroom.server.meter import Stall
from kvroom.server.metrics import Sample

QUEUED = Sample(at=0, running=0, waiting=1, kv_use=0.0)
IDLE = Sample(at=0, running=0, waiting=0, kv_use=0.0)
BUSY = Sample(at=0, running=1, waiting=3, kv_use=0.5)


def given_up(samples: list[Sample | None], last_event: float = 0.0) -> int | None:
    """The second at which the requests sent at 0 are given up; a sample a second from the first on."""
    stall = Stall(12.0, 25.0)
    for second, sample in enumerate(samples, 1):
        if stall.seen(sample, last_event, float(second)):
            return second
    return None


@pytest.mark.parametrize(
    ("samples", "second"),
    [
        ([QUEUED] * 30, 13),
        ([IDLE] * 30, 25),
        ([None] * 30, 25),
        ([BUSY] * 600, None),
        ([QUEUED] * 10 + [BUSY] + [QUEUED] * 10, None),
        ([IDLE] * 5 + [QUEUED] * 20, 18),
    ],
    ids=["queued", "nothing shown", "no figures", "busy", "busy in between", "queued late"],
)
def test_when_it_is_given_up(samples: list[Sample | None], second: int | None) -> None:
    assert given_up(samples) == second


def test_a_token_starts_it_anew() -> None:
    stall = Stall(12.0, 25.0)

    assert not any(stall.seen(QUEUED, float(second), second + 0.1) for second in range(60))
