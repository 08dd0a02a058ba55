"""Needs and prices: what they mean, what contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvroom.errors import KvroomError, UsageError
from kvroom.sizing.need import Asked, need_of
from kvroom.sizing.prices import read_prices


def test_requests_at_once_by_rate_and_latency() -> None:
    asked = Asked(users=200, input_len="2000", output_len="300", rate="5/s", ttft="2s", tpot="50ms")
    need = need_of(asked, 40960, "m")
    assert (need.context, need.held) == (2300, 2300)
    assert need.concurrency == 104  # 5/s x (2 s + 300 x 50 ms) = 85, and two standard deviations
    assert "85.0 on average" in need.why


def test_users_bound_the_requests_at_once() -> None:
    need = need_of(Asked(users=90, input_len="2000", output_len="300", rate="5/s", ttft="2s", tpot="50ms"), 40960, "m")
    assert need.concurrency == 90
    assert need_of(Asked(users=7, context="4k"), 40960, "m").concurrency == 7
    assert need_of(Asked(context="4k"), 40960, "m").concurrency == 1


def test_a_longer_context_than_the_usual_request() -> None:
    need = need_of(Asked(context="32k", input_len="2000", output_len="300", concurrency=4), 40960, "m")
    assert (need.context, need.held) == (32768, 2300)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (Asked(), "size of a request is missing"),
        (Asked(input_len="2000"), "belong together"),
        (Asked(context="1k", input_len="2000", output_len="300"), "shorter than"),
        (Asked(context="64k"), "24,576 longer than m takes"),
        (Asked(context="4k", concurrency=4, users=5), "both say"),
        (Asked(context="4k", concurrency=4, rate="5/s"), "both say"),
        (Asked(context="4k", concurrency=0), "from 1 to"),
        (Asked(context="4k", users=2_000_000), "from 1 to"),
        (Asked(context="4k", rate="5/s"), "does not say how many"),
        (Asked(users=10, input_len="2000", output_len="300", rate="50/s", ttft="2s", tpot="50ms"), "cannot ask 50"),
    ],
)
def test_what_contradicts_itself(asked: Asked, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        need_of(asked, 40960, "m")


def test_prices_of_words_and_files(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("RTX 4090: $0.40/h\nL40S: 657 USD/month\n")
    prices = read_prices([str(file), "H100=2.5 USD"])
    assert prices.currency == "USD"
    assert {name: round(price, 3) for name, price in prices.hourly.items()} == {
        "rtx-4090": 0.4,
        "l40s": 0.9,
        "h100-sxm": 2.5,
    }
    assert prices.of("l40s", 2) == pytest.approx(1.8)
    assert prices.of("a100-sxm-80gb", 2) is None


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("H100=cheap", "not a price"),
        ("H100=2.5/lightyear", "no time"),
        ("H100=$2.5 EUR", "not a usable price"),
        ("H100=0", "not a usable price"),
        ("H100=-1", "not a price"),
        ("H100=", "not a price"),
        ("no such card=1", "no such card"),
        ("missing.yaml", "neither a price nor a file"),
    ],
)
def test_what_is_no_price(item: str, problem: str) -> None:
    with pytest.raises(KvroomError, match=problem):
        read_prices([item])


def test_two_currencies_or_two_prices_of_one_card() -> None:
    with pytest.raises(UsageError, match="several currencies"):
        read_prices(["H100=$2", "L40S=1 EUR"])
    with pytest.raises(UsageError, match="Two prices"):
        read_prices(["H100=2", "H100-SXM=3"])


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1, 1]\nb: [*a, *a]\n",
        "- 1\n",
        "",
        "H100: [1, 2]\n",
        "H100: true\n",
        "{",
        "!!python/object:os.system {}\n",
    ],
)
def test_files_that_are_no_prices(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(UsageError):
        read_prices([str(file)])
