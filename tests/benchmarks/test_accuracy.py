"""The scoreboard's arithmetic on made-up rows, and the margins that the kept figures must hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.accuracy_fold import folded
from benchmarks.accuracy_score import percentile, score, summary
from benchmarks.launches import Apart, Launch, read_corrections, report, reports

from benchmarks import accuracy
from kvroom.units import GIB

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
KEPT: dict[str, Any] = json.loads(accuracy.KEPT.read_text("utf-8"))


def launch(observed: dict[str, Any], *, starts: bool | None = True, length: int = 8192) -> Launch:
    words = ("--model", LLAMA, "--max-model-len", str(length))
    return Launch("1", words, {}, "1x RTX 3090", "0.28.0", observed, starts=starts)


def scored(observed: dict[str, Any], **more: Any) -> dict[str, Any]:
    asked = launch(observed, **more)
    return score(asked, asked.plan)


def row(logged: float, predicted: float, width: float = 0.2, **more: Any) -> dict[str, Any]:
    return {
        "id": "r",
        "kind": "started",
        "model": "m",
        "gpu": "g",
        "release": "0.28.0",
        "entries": {"available": {"logged": logged, "predicted": predicted}},
        "available": {"low": predicted - width, "expected": predicted, "high": predicted + width},
        "given_pool": {"tokens": True},
        "verdict": {"said": "fits", "observed": "starts", "right": True},
        **more,
    }


def test_a_pool_that_was_logged_gives_its_own_blocks() -> None:
    pool = launch({}).plan().prediction.pool
    assert pool is not None
    logged = round(pool.available_bytes / GIB, 2)
    right = scored({"kv_available_gib": logged, "kv_tokens": pool.tokens, "gpu_blocks": pool.num_blocks})
    assert right["given_pool"] == {"blocks": True, "tokens": True}
    assert right["entries"]["tokens"] == {"logged": pool.tokens, "predicted": pool.tokens}
    assert scored({"kv_available_gib": logged, "kv_tokens": pool.tokens - 160})["given_pool"] == {"tokens": False}
    assert scored({"kv_available_gib": logged - 0.5, "kv_tokens": pool.tokens})["given_pool"] == {"tokens": False}
    assert scored({"kv_available_gib": logged})["given_pool"] is None


def test_a_verdict_is_right_where_it_says_what_happened() -> None:
    assert scored({})["verdict"] == {"said": "fits", "expected": "starts", "observed": "starts", "right": True}
    assert scored({}, length=131072)["verdict"]["right"] is False
    assert scored({}, length=131072, starts=False)["verdict"]["right"] is True
    assert scored({}, starts=None)["verdict"]["right"] is None


def test_a_tight_verdict_counts_as_what_happens_at_the_expected_values() -> None:
    pool = launch({}).plan().prediction.pool
    assert pool is not None
    for length, expected in ((pool.tokens - 16, "starts"), (pool.tokens + 16, "fails")):
        verdict = scored({}, length=length)["verdict"]
        assert (verdict["said"], verdict["expected"]) == ("tight", expected)


def test_figures_over_rows() -> None:
    rows = [
        row(10.0, 10.1),
        row(10.0, 10.4, given_pool={"blocks": True, "tokens": False}),
        row(10.0, 11.5, verdict={"said": "fits", "observed": "fails", "right": False}),
        row(10.0, 9.0, given_pool=None, verdict={"said": "fits", "observed": None, "right": None}),
    ]
    found = summary(rows)
    assert found == {
        "rows": 4,
        "pool_median_gib": pytest.approx(0.7),
        "pool_median_percent": pytest.approx(7.0),
        "pool_within_half_gib": 0.5,
        "over_promised_1gib": 0.25,
        "blocks_equal": pytest.approx(0.6667),
        "verdict_right": pytest.approx(0.6667),
        "weights_median_percent": None,
        "coverage_80": 0.25,
        "half_width_80_gib": pytest.approx(0.2),
    }
    assert summary([])["pool_median_gib"] is None


def test_the_worst_rows_name_what_differs() -> None:
    bad = row(10.0, 12.0)
    assert accuracy.worst([row(10.0, 10.1), bad])[0] is bad
    assert accuracy.worst_line(bad) == "r m on g, 0.28.0: available 10.00 -> 12.00"


def test_a_percentile_is_one_of_the_values() -> None:
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.5, 0.9, 1.0)] == [2.0, 3.0, 3.0]


REPORT = {
    "id": 7,
    "vllm_version": "0.28.0",
    "gpu": {"name": "RTX 3090", "count": 1},
    "model": LLAMA,
    "command": ["vllm", "serve", LLAMA, "--max-model-len", "8192"],
    "observed": {"stage": "kv_check", "kv_available_gib": 5.0},
}


def test_a_report_is_asked_about_as_it_stands_or_as_corrected() -> None:
    found = report(REPORT, {}, "failing")
    assert isinstance(found, Launch)
    assert (found.words[0], found.starts, found.gpu) == (LLAMA, False, "1x RTX 3090")
    fixed = report(REPORT, {"model": "Qwen/Qwen3-8B", "more": ["--dtype", "half"], "observed": {"weights_gib": 1.0}})
    assert isinstance(fixed, Launch)
    assert fixed.words == ("Qwen/Qwen3-8B", "--max-model-len", "8192", "--dtype", "half")
    assert fixed.observed["weights_gib"] == 1.0
    assert fixed.starts is True


@pytest.mark.parametrize(
    ("changes", "correction", "reason"),
    [
        ({"gpu": {}}, {}, "the card is not stated"),
        ({"vllm_version": None}, {}, "the release is not stated"),
        ({"vllm_version": "0.1.dev7+gabc"}, {}, "a development build that names no release"),
        ({"command": ["python", "x.py"]}, {}, "the command and the settings are not stated"),
        ({"observed": {"stage": "kv_check"}}, {}, "its log shows none of the memory figures"),
        ({}, {"apart": "a patched build"}, "a patched build"),
    ],
)
def test_a_row_that_cannot_be_asked_about_says_why(
    changes: dict[str, Any], correction: dict[str, Any], reason: str
) -> None:
    assert report({**REPORT, **changes}, correction, "failing") == Apart("7", reason)


def test_a_model_that_is_not_at_hand_is_listed_apart(tmp_path: Path) -> None:
    (tmp_path / "started").mkdir()
    other = {**REPORT, "command": ["vllm", "serve", "nobody/has-this", "--max-model-len", "64"]}
    for number, data in enumerate((REPORT, {**other, "id": 8})):
        (tmp_path / "started" / f"{number}.json").write_text(json.dumps(data), "utf-8")
    board = accuracy.run(tmp_path)
    assert board["summary"]["rows"] == 1
    assert "nobody/has-this" in board["rows"][1]["apart"]
    assert "Not asked about: 1" in accuracy.table(board)
    accuracy.write(board, tmp_path / "kept.json")
    kept = json.loads((tmp_path / "kept.json").read_text("utf-8"))
    assert kept["summary"] == board["summary"]
    assert [len(kept["rows"]), kept["not_asked"]] == [1, 1]


def test_a_refit_never_sees_the_row_it_is_scored_on() -> None:
    def cell(card: str, other: float) -> dict[str, Any]:
        group = {"family": "llama", "card": card, "era": "e", "maker": "NVIDIA", "gpus": 1, "peak": "forward"}
        entries = {"available": {"logged": 10.0, "predicted": 10.0}, "other": {"logged": other, "predicted": 0.1}}
        return row(10.0, 10.0, group=group, ledger={"activation": 1.0, "other": 0.1}, entries=entries)

    rows = [cell("a", 9.0), cell("b", 0.3), cell("c", 0.3), cell("d", 0.5)]
    found, changed = folded(rows)
    assert changed == 4
    # the three others of "a" logged 0.3, 0.3 and 0.5 GiB where the packaged constant is 0.1
    assert found[0]["entries"]["available"]["predicted"] == pytest.approx(9.8)
    assert folded(rows[:3])[1] == 0


def test_every_correction_gives_its_reason() -> None:
    for name, correction in read_corrections().items():
        assert correction.get("why") or correction.get("apart"), name
    assert list(reports(Path("nowhere"), {})) == []


def test_the_kept_figures_hold_their_margins() -> None:
    """A change that makes the public launches worse than this must say so here."""
    figures = KEPT["summary"]
    assert figures["rows"] >= 60
    assert figures["pool_median_gib"] <= 0.14
    assert figures["pool_median_percent"] <= 1.2
    assert figures["pool_within_half_gib"] >= 0.79
    assert figures["over_promised_1gib"] <= 0.11
    assert figures["blocks_equal"] >= 0.95
    assert figures["verdict_right"] >= 0.97
    assert figures["weights_median_percent"] <= 0.15
    assert 0.75 <= figures["coverage_80"] <= 0.92
    assert figures["half_width_80_gib"] <= 0.34
    assert len(KEPT["rows"]) == figures["rows"]
