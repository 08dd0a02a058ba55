"""The two commands, and what they print and export."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kvroom.cli.tune import trials, tune
from kvroom.errors import KvroomError
from kvroom.trials.figures import Figures, Peak, Sample
from kvroom.trials.store import Run, Store
from kvroom.trials.trial import Forecast, Proposal, State, Trial

ASKED = {
    "goal": "context=16384",
    "limits": ["ttft<2s"],
    "vllm_version": "0.32.0",
    "command": ["vllm", "serve", "<b>m</b>"],
}
ENDING = {
    "met": True,
    "best": 2,
    "command": ["vllm", "serve", "m", "--max-model-len", "8192"],
    "why": ["context=16384 is met."],
    "margin": ["the pool holds 4.00 times"],
    "launches": 3,
    "started": 2,
    "skipped": 1,
    "stopped": "nothing is left to gain",
}


def figures(throughput: float) -> Figures:
    return Figures(65536, 8192, Peak(1 << 30, 4 << 30), 30.0, (Sample(0.25, 0.01, throughput),))


@pytest.fixture
def run(store: Store) -> Run:
    """A run of four trials that has ended."""
    run, _ = store.take("key", ASKED)
    told = Forecast("fits", kv_tokens=65536)
    steps: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"max_model_len": 4096}, {"state": State.STARTED, "figures": figures(100), "kept": True}),
        ({"max_model_len": 8192}, {"state": State.STARTED, "figures": figures(120), "kept": True}),
        ({"max_num_seqs": 32}, {"state": State.FAILED, "reason": "no <room> left", "finding": "KVR203 x"}),
        ({"max_num_seqs": 64}, {"state": State.SKIPPED, "reason": "the ledger says so"}),
    ]
    for number, (step, came) in enumerate(steps, 1):
        proposal = Proposal(changes=step, step=step, why="a reason")
        store.finish(run, Trial(number=number, proposal=proposal, forecast=told, **came))
    store.end(run, ENDING)
    return run


def asked(store: Store, *words: str) -> str:
    done = CliRunner().invoke(trials, ["--store", store.url, *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_runs_are_listed(store: Store, run: Run) -> None:
    assert run.id in asked(store)
    listed = json.loads(asked(store, "--json"))
    assert (listed["schema"], listed["kind"], listed["runs"][0]["run"]) == ("kvroom/1", "trials", run.id)


def test_a_run_is_shown_with_its_four_figures_and_its_ending(store: Store, run: Run) -> None:
    shown = asked(store, run.id[:4])

    assert "--max-model-len 8192" in shown
    for word in ("65,536", "120.0", "0.25 s", "1.00 GiB (25%)", "not launched", "failed", "no <room> left"):
        assert word in shown
    assert "Best command\n  vllm serve m --max-model-len 8192" in shown
    assert shown == asked(store, "last")


def test_json_has_every_figure(store: Store, run: Run) -> None:
    data = json.loads(asked(store, "last", "--json"))

    assert (data["kind"], data["run"], data["ending"]["best"]) == ("tune", run.id, 2)
    assert data["trials"][1]["figures"]["throughput"] == 120
    assert data["trials"][1]["figures"]["peak"] == {"used_bytes": 1 << 30, "total_bytes": 4 << 30, "device": "gpu"}
    assert data["trials"][3]["state"] == "skipped"


def test_exports(store: Store, run: Run, tmp_path: Path) -> None:
    for name in ("a.json", "a.csv", "a.html"):
        assert "4 trials written" in asked(store, "last", "--export", str(tmp_path / name))
    assert json.loads((tmp_path / "a.json").read_text())["run"] == run.id
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [row["output_tokens_per_s"] for row in rows] == ["100.0", "120.0", "", ""]
    assert rows[0]["predicted_kv_tokens"] == rows[0]["kv_tokens"] == "65536"


def test_the_page_is_whole_escaped_and_loads_nothing(store: Store, run: Run, tmp_path: Path) -> None:
    asked(store, "--export", str(tmp_path / "a.html"))
    page = (tmp_path / "a.html").read_text()

    class Balanced(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag not in {"meta", "rect", "line"}:
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in {"rect", "line"}:
                assert self.open.pop() == tag

    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "<b>m</b>" not in page
    assert "no &lt;room&gt; left" in page
    assert page.count("<svg") == 4
    assert "120.0 (+20%)" in page
    assert not any(word in page for word in ("http:", "https:", "<script", "@import", "url("))


def test_an_export_of_another_kind_is_wrong_usage(store: Store, run: Run, tmp_path: Path) -> None:
    done = CliRunner().invoke(trials, ["--store", store.url, "--export", str(tmp_path / "a.pdf")])
    assert done.exit_code == 2
    assert not (tmp_path / "a.pdf").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--goal", "speed"], "--goal speed"),
        (["--limit", "ttft<2"], "--limit"),
        (["--keep", "nonsense"], "no such flag"),
        (["--input-len", "4000", "--output-len", "200"], "do not fit"),
        (["--max-trials", "0"], "at least 1"),
        (["--repeats", "0"], "at least 1"),
        (["--concurrency", "0"], "--concurrency 0: at least 1"),
        (["--concurrency", "999999999"], "--concurrency 999999999: at most 100,000"),
        (["--requests", "-1"], "--requests -1"),
        (["--input-len", "0"], "--input-len 0"),
        (["--output-len", "-7"], "--output-len -7"),
        (["--start-timeout", "nan"], "--start-timeout nan"),
        (["--start-timeout", "-1"], "--start-timeout -1"),
        (["--gpu", "RTX 99999"], "99999"),
    ],
)
def test_bad_input_is_one_error_and_launches_nothing(
    words: list[str], said: str, command: list[str], store: Store
) -> None:
    given = ["--store", store.url, "--vllm", "0.32.0", "--offline", *words, "--", *command]
    with pytest.raises(KvroomError, match=said):
        CliRunner().invoke(tune, given, catch_exceptions=False)
    assert store.runs() == []
