"""The factors that were traced: what the fast path makes of them lies where the traces lie."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvroom.ledger.entries import Basis, Entry
from kvroom.ledger.traced import factors_for
from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request
from kvroom.units import GIB

PEAKS = json.loads((Path(__file__).parents[1] / "data" / "traced" / "peaks.json").read_text("utf-8"))["rows"]
NEAR_GIB, NEAR_SHARE = 0.1, 0.05


def predicted(model: str, *words: str, gpu: str = "H200", release: str) -> Entry:
    prediction = plan_tokens([model, *words], {}, Request(gpu=gpu, vllm=release, offline=True)).prediction
    assert prediction.ledger is not None
    return prediction.ledger.activation


def of_row(row: dict[str, Any]) -> Entry:
    """As the row was traced; text alone, since the models' processors were not at hand."""
    words = ["--max-num-seqs", str(row["seqs"]), "--max-num-batched-tokens", str(row["tokens"]), "--max-model-len"]
    words += ["2048", "-tp", str(row["tp"]), "--limit-mm-per-prompt", '{"image": 0, "video": 0}']
    return predicted(row["model"], *words, gpu=f"{row['tp']}x H200", release=row["release"])


def test_launches_with_both_phases_are_predicted_from_each_alone() -> None:
    """The factors come from launches that show one phase; these show the larger of both."""
    rows = [row for row in PEAKS if (row["seqs"], row["tokens"]) == (1024, 8192)]
    far = [
        (row["release"], row["model"], round(row["activation"] / GIB, 3), round(entry.expected / GIB, 3))
        for row in rows
        if abs((entry := of_row(row)).expected - row["activation"])
        > max(NEAR_GIB * GIB, NEAR_SHARE * row["activation"])
    ]

    assert len(rows) >= 20
    assert len(far) <= 0.05 * len(rows), far


def test_what_was_traced_lies_inside_the_interval() -> None:
    outside = Counter(
        (row["release"], row["model"])
        for row in PEAKS
        if not (entry := of_row(row)).low <= row["activation"] <= entry.high
    )

    assert outside.total() <= 0.1 * len(PEAKS), outside


def test_an_architecture_that_was_traced_says_so() -> None:
    entry = predicted("Qwen/Qwen3-4B", release="0.32.0")

    assert entry.basis is Basis.TRACED
    assert "0.32.0 allocates it for Qwen3ForCausalLM" in entry.why


def test_another_architecture_takes_the_spread_of_its_kind() -> None:
    entry = predicted("stabilityai/stablelm-3b-4e1t", release="0.32.0")
    sure = predicted("Qwen/Qwen3-4B", release="0.32.0")

    assert entry.basis is Basis.ESTIMATED
    assert (entry.high - entry.low) / entry.expected > (sure.high - sure.low) / sure.expected


@pytest.mark.parametrize(("release", "found"), [("0.9.2", False), ("0.32.0", True)])
def test_releases_before_the_first_traced_one_keep_the_formulas(release: str, found: bool) -> None:
    setup = plan_tokens(["Qwen/Qwen3-8B"], {}, Request(gpu="H100", vllm=release, offline=True)).prediction
    assert setup.settings is not None

    assert (factors_for(setup.setup.shape, setup.setup.args, setup.settings) is not None) is found
