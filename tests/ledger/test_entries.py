from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvroom.ledger.entries import Basis, Entry, close, exact

SIZES = st.integers(0, 1 << 40)


@st.composite
def entries(draw: st.DrawFn, name: str) -> Entry:
    low, expected, high = sorted(draw(st.tuples(SIZES, SIZES, SIZES)))
    return Entry(name, low, expected, high, draw(st.sampled_from(Basis)), "why")


NAMES = ("requested", "weights", "activation", "other", "cuda_graphs")


@given(st.tuples(*(entries(name) for name in NAMES)))
def test_the_parts_sum_to_the_total_and_the_interval_is_ordered(parts: tuple[Entry, ...]) -> None:
    ledger = close(*parts)
    assert ledger.available.expected + sum(p.expected for p in parts[1:]) == parts[0].expected
    assert ledger.available.low <= ledger.available.expected <= ledger.available.high + 1
    worst = parts[0].low - sum(p.high for p in parts[1:])
    best = parts[0].high - sum(p.low for p in parts[1:])
    assert worst - 2 <= ledger.available.low
    assert ledger.available.high <= best + 2


def test_exact_parts_leave_no_uncertainty_and_the_weakest_basis_is_named() -> None:
    parts = [exact(name, size, Basis.MEASURED, "") for name, size in (("requested", 100), ("weights", 60))]
    parts += [exact("activation", 10, Basis.ESTIMATED, ""), exact("other", 5, Basis.COMPUTED, "")]
    ledger = close(*parts, exact("cuda_graphs", 5, Basis.COMPUTED, ""))
    available = ledger.available
    assert (available.low, available.expected, available.high) == (20, 20, 20)
    assert available.basis is Basis.ESTIMATED


def test_an_interval_of_95_that_was_not_measured_is_that_of_a_normal_error() -> None:
    entry = Entry("other", 90, 100, 120, Basis.ESTIMATED, "")
    assert (entry.low95, entry.high95) == (84, 130)
    assert Entry("other", 90, 100, 120, Basis.ESTIMATED, "", wide=(50, 200)).low95 == 50
