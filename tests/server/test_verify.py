"""The command, from its words to its files, on a server that behaves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from kvroom.errors import UsageError
from tests.server.conftest import Ran
from tests.server.fake import Behaviour, FakeServer

Run = Callable[..., Ran]
SHORT = ("--input-len", "64", "--output-len", "16")
BENCH = {
    *("backend", "burstiness", "completed", "date", "duration", "endpoint_type", "errors", "failed", "generated_texts"),
    *("input_lens", "itls", "label", "latencies", "max_concurrency", "max_concurrent_requests"),
    *("max_output_tokens_per_s", "mean_itl_ms", "mean_tpot_ms", "mean_ttft_ms", "median_itl_ms", "median_tpot_ms"),
    *("median_ttft_ms", "model_id", "num_prompts", "output_lens", "output_throughput", "p99_itl_ms", "p99_tpot_ms"),
    *("p99_ttft_ms", "queue_times", "request_goodput", "request_rate", "request_throughput", "rtfx", "start_times"),
    *("std_itl_ms", "std_tpot_ms", "std_ttft_ms", "tokenizer_id", "total_input_tokens", "total_output_tokens"),
    *("total_token_throughput", "ttfts"),
}
"""The keys that ``vllm bench serve --save-result --save-detailed`` of 0.32.0 wrote."""


def test_all_holds_and_the_pool_ends_the_ramp(run: Run) -> None:
    with FakeServer() as server:
        ran = run(server.url, "--json")

    data = ran.data
    assert (ran.code, data["kind"], data["holds"]) == (0, "verification", True)
    assert (data["model"], data["vllm_version"], data["max_model_len"]) == ("tiny", "0.32.0", 512)
    assert {check["held"] for check in data["checks"]} == {"holds"}
    assert data["limit"]["cause"] == "kv_pool"
    assert data["kv_cache"] == {
        "claimed_tokens": 2064,
        "claimed_blocks": 129,
        "block_size": 16,
        "usable_tokens": 2048,
        "usable_blocks": 128,
        "kept_back": 16,
        "exact": True,
        "why": None,
    }
    steps = data["steps"]
    assert [step["concurrency"] for step in steps] == [1, 2, 4, 8]
    assert sum(step["preemptions"] for step in steps) == server.preemptions > 0
    assert all(step["output_rate"] == step["output_tokens"] / step["duration"] for step in steps)
    assert all(step["input_tokens"] == 256 * step["completed"] for step in steps)


def test_seats_end_the_ramp(run: Run) -> None:
    with FakeServer(Behaviour(seats=4, step_s=0.006)) as server:
        ran = run(server.url, "--json", "--no-boundary", *SHORT)
        assert server.peak_running == 4

    limit = ran.data["limit"]
    assert (limit["cause"], limit["changes"][0]["flags"]) == ("max_num_seqs", ["--max-num-seqs", "8"])
    assert ran.code == 0


def test_a_concurrency_that_was_asked_for_must_be_reached(run: Run) -> None:
    with FakeServer(Behaviour(seats=4, step_s=0.006)) as server:
        few = run(server.url, "--json", "--no-boundary", *SHORT, "--concurrency", "4")
        many = run(server.url, "--json", "--no-boundary", *SHORT, "--concurrency", "4,16")

    assert (few.code, few.data["limit"]["cause"], few.data["best_concurrency"]) == (0, "levels", 4)
    assert (many.code, many.data["limit"]["cause"]) == (1, "max_num_seqs")
    assert many.check("load")["seen"].startswith("at 16 at once: never more than 4 run")


def test_a_target_that_one_request_misses_does_not_hold(run: Run) -> None:
    with FakeServer(Behaviour(step_s=0.02)) as server:
        ran = run(server.url, "--json", "--no-boundary", *SHORT, "--tpot", "5ms")

    assert (ran.code, ran.data["limit"]["cause"], ran.data["best_concurrency"]) == (1, "tpot", None)


def test_a_trace_is_replayed_at_its_own_pace(run: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [{"input_len": 20 + i, "output_len": 5, "arrival_time": i / 5} for i in range(6)]
    lines.append({"input_len": 5000, "output_len": 1, "arrival_time": 2})
    trace.write_text("\n".join(json.dumps(line) for line in lines), "utf-8")
    with FakeServer() as server:
        ran = run(server.url, "--json", "--no-boundary", "--trace", str(trace))

    (step,) = ran.data["steps"]
    assert (step["concurrency"], step["completed"], step["input_tokens"]) == (None, 6, sum(range(20, 26)))
    assert 1.0 <= step["duration"] < 2.0
    assert any("1 requests of the trace are longer" in note for note in ran.data["notes"])


def test_chat_is_loaded_with_messages_of_the_length_asked_for(run: Run) -> None:
    with FakeServer() as server:
        ran = run(server.url, "--json", "--no-boundary", "--endpoint", "chat", *SHORT, "--concurrency", "2")
        loaded = [data for _, path, _, data in server.seen if path == "/v1/chat/completions"][-8:]

    assert ran.code == 0
    assert ran.data["steps"][-1]["input_tokens"] == 8 * 64
    assert all(data["stream"] and data["messages"] for data in loaded)


@pytest.mark.parametrize(
    ("behaviour", "unknown"),
    [
        (Behaviour(metrics=False), {"KV cache"}),
        (Behaviour(max_model_len=None, version=None), {"version", "boundary"}),
        (Behaviour(chat_template=False), {"chat"}),
        (Behaviour(known_fields=False), set()),
        (Behaviour(tokenize=False), set()),
        (Behaviour(takes_ids=False), {"KV cache"}),
    ],
    ids=["no metrics", "no length", "no template", "no extra fields", "no tokenizer", "no ids"],
)
def test_what_a_server_lacks_is_unknown_and_no_fault(run: Run, behaviour: Behaviour, unknown: set[str]) -> None:
    with FakeServer(behaviour) as server:
        ran = run(server.url, "--json", *SHORT, "--concurrency", "2")

    assert {check["name"] for check in ran.data["checks"] if check["held"] == "unknown"} == unknown
    assert ran.code == 0
    assert ran.data["steps"][-1]["completed"] == 8


def test_a_server_of_chat_alone_is_loaded_by_chat(run: Run) -> None:
    with FakeServer(Behaviour(completions=False)) as server:
        ran = run(server.url, "--json", "--endpoint", "chat", *SHORT, "--concurrency", "2")

    assert (ran.code, ran.check("completions")["held"], ran.check("chat")["held"]) == (0, "unknown", "holds")
    assert ran.data["steps"][-1]["completed"] == 8
    assert any("exact lengths" in note for note in ran.data["notes"])


def test_the_key_is_sent_and_never_shown(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SERVE_KEY", "k-8d1f0aa2")
    page = tmp_path / "page.html"
    with FakeServer(Behaviour(key="k-8d1f0aa2")) as server:
        words = ("--api-key-env", "SERVE_KEY", "--header", "X-Team: t-77c1", "--no-boundary", *SHORT)
        text = run(server.url, *words, "--concurrency", "1", "--html", str(page))
        data = run(server.url, *words, "--concurrency", "1", "--json")
        headers = [headers for _, _, headers, _ in server.seen]

    assert text.code == data.code == 0
    assert all(h["authorization"] == "Bearer k-8d1f0aa2" and h["x-team"] == "t-77c1" for h in headers)
    for shown in (text.out, text.err, data.out, data.err, page.read_text("utf-8")):
        assert "8d1f0aa2" not in shown
        assert "77c1" not in shown


def test_no_key_is_sent_that_was_not_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "k-1")
    monkeypatch.setenv("OPENAI_API_KEY", "k-2")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # a proxy would see every request
    with FakeServer() as server:
        assert run(server.url, "--no-boundary", "--no-ramp").code == 0
        assert not any("authorization" in headers for _, _, headers, _ in server.seen)


def test_the_text_says_what_ends_it_and_what_to_change(run: Run) -> None:
    with FakeServer() as server:
        ran = run(server.url)

    assert "HOLDS  all that was tried" in ran.out
    assert "First limit: kv_pool at 8 at once" in ran.out
    assert "1. --gpu-memory-utilization 0.95" in ran.out
    assert re.search(r"^ +8 +16 +0 ", ran.out, re.MULTILINE)
    assert "8 at once, 16 requests" in ran.err


def test_the_page_has_plots_and_takes_nothing_from_elsewhere(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with FakeServer(Behaviour(step_s=0.003, model="<script>alert(1)</script>")) as server:
        assert run(server.url, "--ttft", "5s", "--html", str(page)).code == 0
    text = page.read_text("utf-8")

    assert text.count("<svg") == 4
    assert "First limit: kv_pool" in text
    assert "<script" not in text
    assert re.findall(r"(?:src|href|url\()", text) == []


def test_the_bench_json_has_the_keys_and_sums_of_vllm(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    with FakeServer() as server:
        run(server.url, "--no-boundary", *SHORT, "--concurrency", "4", "--bench-json", str(file))
    data: dict[str, Any] = json.loads(file.read_text("utf-8"))

    assert set(data) >= BENCH
    assert (data["completed"], data["failed"], data["max_concurrency"]) == (8, 0, 4)
    assert (data["total_input_tokens"], data["total_output_tokens"]) == (8 * 64, 8 * 16)
    assert data["output_throughput"] == pytest.approx(8 * 16 / data["duration"])
    for latency, ttft, itls in zip(data["latencies"], data["ttfts"], data["itls"], strict=True):
        assert latency == pytest.approx(ttft + sum(itls))
    tpots = [(t - f) / 15 for t, f in zip(data["latencies"], data["ttfts"], strict=True)]
    assert data["mean_tpot_ms"] == pytest.approx(1000 * sum(tpots) / 8)


@pytest.mark.parametrize(
    "words",
    [
        ("--concurrency", "0"),
        ("--concurrency", "1,two"),
        ("--ttft", "soon"),
        ("--tpot", "0"),
        ("--header", "nothing"),
        ("--api-key-env", "NO_SUCH_VARIABLE"),
        ("--trace", "no-such-file"),
        ("--ca-file", "no-such-file"),
        ("--model", "another"),
        ("--input-len", "500", "--output-len", "500"),
        ("--trace", "x", "--input-len", "5"),
        ("--html", "/no/such/folder/page.html", "--no-ramp"),
        ("--timeout", "nan"),
        ("--max-seconds", "inf"),
    ],
)
def test_wishes_that_cannot_be_met_are_errors(run: Run, words: tuple[str, ...]) -> None:
    with FakeServer() as server, pytest.raises((UsageError, click.UsageError)) as error:
        run(server.url, *words)
    assert "Traceback" not in str(error.value)


@pytest.mark.parametrize("option", ["--html", "--bench-json"])
@pytest.mark.parametrize("name", ["/no/such/folder/file", "", "."])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_sent(run: Run, option: str, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        run("http://127.0.0.1:1", option, name)


def test_lengths_that_no_request_has_are_named(run: Run) -> None:
    with pytest.raises(UsageError, match="--input-len 99999999999") as error:
        run("http://127.0.0.1:1", "--input-len", "99999999999")
    assert "below 2,147,483,648" in error.value.cure


def test_another_name_than_the_served_one_is_explained(run: Run) -> None:
    with FakeServer() as server, pytest.raises(UsageError, match=r"404.*serves tiny") as error:
        run(server.url, "--model", "Qwen/Qwen3-8B")
    assert "--served-model-name" in error.value.cure
