"""What docs/throughput.md claims is what the packaged factors do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.throughput import RESULTS, Case, cases, ratios, telling

from kvroom.throughput.factors import fitted

RESULT = json.loads(RESULTS.read_text("utf-8"))
CASES = cases()


@pytest.mark.parametrize("case", [case for case in CASES if "requests" in case.raw], ids=lambda case: case.id)
def test_runs_with_public_requests_are_within_a_fifth(case: Case) -> None:
    found = ratios(case, fitted().factors)
    assert 0.8 < found["tpot"] < 1.2
    assert 0.8 < found["throughput"] < 1.2


def test_light_and_heavy_loads_of_every_card_and_model() -> None:
    errors = {"tpot": [], "throughput": []}
    for case in telling(CASES):
        for name, listed in errors.items():
            if name in case.measured:
                listed.append(abs(ratios(case, fitted().factors)[name] - 1))
    assert sum(errors["tpot"]) / len(errors["tpot"]) < 0.2
    assert sum(errors["throughput"]) / len(errors["throughput"]) < 0.15


def test_the_packaged_intervals_are_those_that_were_measured() -> None:
    fit = fitted()
    assert list(fit.tpot) == RESULT["intervals"]["tpot"]
    assert list(fit.throughput) == RESULT["intervals"]["throughput"]
    assert list(fit.after_one) == RESULT["intervals"]["after_one"]
    assert fit.runs == len(CASES)
    assert min(RESULT["coverage_of_cards"].values()) >= 0.75


def test_the_page_tells_these_numbers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "throughput.md").read_text("utf-8")
    for name in ("tpot", "throughput"):
        assert f"{RESULT['all'][name]['mean']} %" in page
        assert f"{RESULT['after_one'][name]['mean']} %" in page
        assert f"{RESULT['after_one'][name]['median']} %" in page


def test_every_run_says_where_it_is_from() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    assert all(case.source for case in CASES)
    assert len({case.card_name for case in CASES}) >= 7
