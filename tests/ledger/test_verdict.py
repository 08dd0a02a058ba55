from __future__ import annotations

import pytest

from kvroom.ledger.verdict import Outcome, Status, judge

STARTS = Outcome(True)


def fails(stage: str) -> Outcome:
    return Outcome(False, stage, f"message of {stage}")


@pytest.mark.parametrize(
    ("outcomes", "status", "stage"),
    [
        ((STARTS, STARTS, STARTS), Status.FITS, None),
        ((fails("a"), fails("b"), fails("c")), Status.FAILS, "b"),
        ((fails("a"), STARTS, STARTS), Status.TIGHT, "a"),
        ((fails("a"), fails("b"), STARTS), Status.TIGHT, "b"),
    ],
)
def test_the_verdict_is_definite_only_when_all_three_agree(outcomes, status, stage) -> None:
    verdict = judge(*outcomes)
    assert (verdict.status, verdict.stage) == (status, stage)
    assert verdict.message == (f"message of {stage}" if stage else None)
