"""What is said of a start: the lines behind vLLM's text, one log line, the ledger that `learn` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.plugin.fakes import AVAILABLE, MODEL, Lines, UniProcExecutor, config, core, pool, worker

import kvroom
from kvroom.cli.main import run
from kvroom.errors import UsageError
from kvroom.learned.exchange import of_start
from kvroom.learned.store import Store
from kvroom.plugin.account import account_of
from kvroom.plugin.observer import Observer
from kvroom.plugin.record import record, write
from kvroom.plugin.start import start_of
from kvroom.plugin.table import table
from kvroom.units import GIB

RELEASE = "0.26.0"


def refusal(a_core: Any = None, a_config: Any = None, version: str = RELEASE) -> str:
    """The text that this vLLM raises for the start, by kvroom's rules."""
    start = start_of(a_core or core(), a_config or config(), version, table(), {})
    pool = account_of(start, "").prediction.pool
    assert pool is not None
    assert pool.error is not None
    return pool.error


def said(
    text: str, a_core: Any = None, a_config: Any = None, version: str = RELEASE, **environ: str
) -> tuple[str, Lines]:
    """What the error says after the plugin saw it, and what was logged."""
    log, error = Lines(), ValueError(text)
    Observer(table(), version, environ, log).refused(a_core or core(), a_config or config(), error)
    return str(error), log


def came_up(a_config: Any = None, blocks: int | None = None, a_core: Any = None, **environ: str) -> Lines:
    """What is logged of a start that came up."""
    log = Lines()
    shorter = a_config or config(model_config__max_model_len=8192, model_config__original_max_model_len=8192)
    count = blocks if blocks is not None else AVAILABLE // (2 << 20)
    Observer(table(), RELEASE, environ, log).started(a_core or core(), shorter, pool(count))
    return log


def test_vllms_text_stays_in_front_and_the_facts_follow() -> None:
    text = refusal()
    shown, log = said(text)
    assert shown.startswith(text + "\n\n[kvroom ")
    lines = shown.removeprefix(text).splitlines()
    assert "  attention backend: FLASH_ATTN (vLLM's choice: " in shown
    assert (
        "  memory: 21.28 GiB requested (23.64 GiB x 0.9) less weights 14.99 GiB, activation 1.23 GiB, other 0.31 GiB"
        in (shown)
    )
    assert "leaves 4.75 GiB for the KV cache" in shown
    assert "one request of 131,072 tokens: 16.00 GiB, 128.0 KiB a token; longest that fits: 38,8" in shown
    changes = [line for line in lines if line.startswith("    --")]
    assert any(line.startswith("    --max-model-len 36864: starts, ") for line in changes)
    assert not log.warnings
    assert not log.lines


def test_fewer_bytes_a_token_are_offered_where_they_suffice() -> None:
    half = config(model_config__max_model_len=65536, model_config__original_max_model_len=65536)
    shown, _ = said(refusal(a_config=half), a_config=half)
    assert "    --kv-cache-dtype fp8: starts, 1.1" in shown


def test_more_utilisation_is_offered_where_the_card_is_free() -> None:
    near = config(model_config__max_model_len=45056, model_config__original_max_model_len=45056)
    shown, _ = said(refusal(a_config=near), a_config=near)
    assert "    --gpu-memory-utilization 0.9" in shown


def test_a_backend_that_was_asked_for_is_said_to_be() -> None:
    asked = config(attention_config__backend="FLASH_ATTN")
    shown, _ = said(refusal(a_config=asked), a_config=asked)
    assert "attention backend: FLASH_ATTN (asked for: FLASH_ATTN by --attention-backend)" in shown


def test_a_cache_given_in_bytes_gets_the_bytes_it_needs() -> None:
    bare = worker(peak_activation_memory=None, available_kv_cache_memory_bytes=None)
    fixed = config(
        cache_config__kv_cache_memory_bytes=GIB,
        model_config__max_model_len=16384,
        model_config__original_max_model_len=16384,
    )
    a_core = core(UniProcExecutor(bare), available=GIB)
    shown, _ = said(refusal(a_core, fixed), a_core, fixed)
    assert "memory: 1.00 GiB for the KV cache by --kv-cache-memory-bytes, without a profile; weights 14.99 GiB" in shown
    assert f"    --kv-cache-memory-bytes {2 * GIB + (2 << 20)}: starts, 1.00 requests of 16,384 tokens at once" in shown


@pytest.mark.parametrize("name", ["nobody/no-such-model-anywhere", MODEL])
def test_what_kvroom_cannot_price_follows_from_the_text(name: str) -> None:
    """Another model than the text is of, and one that nobody knows."""
    text = (
        "To serve at least one request with the model's max seq len (131072), (5.0 GiB KV cache is needed, which is"
        " larger than the available KV cache memory (4.75 GiB). Based on the available memory, the estimated maximum"
        " model length is 99990. Try."
    )
    shown, log = said(text, a_config=config(model_config__model=name))
    assert shown.startswith(text + "\n")
    assert "    --max-model-len 99990: the engine's own estimate of what fits" in shown
    assert "    --gpu-memory-utilization 0.92: 0.27 GiB more, of what is free on the card" in shown
    assert "weights 14.99 GiB" in shown
    assert len(log.warnings) == (name != MODEL)


def test_an_untested_release_asks_no_worker_and_still_says_what_it_can() -> None:
    text = refusal(version="0.26.0")
    executor = UniProcExecutor(worker())
    shown, log = said(text, core(executor), version="0.99.0")
    assert executor.asked == 0
    assert shown.startswith(text + "\n")
    assert "attention backend: not known" in shown
    assert "not known: vLLM 0.99.0 is none that the plugin was tested with" in shown
    assert len(log.warnings) <= 1


@pytest.mark.parametrize("error", [ValueError("head_size 48 is not supported"), ValueError(), ValueError(1, 2)])
def test_other_errors_are_left_alone(error: ValueError) -> None:
    before = error.args
    executor = UniProcExecutor(worker())
    Observer(table(), RELEASE, {}, Lines()).refused(core(executor), config(), error)
    assert error.args == before
    assert executor.asked == 0


def test_a_start_that_came_up_is_one_line() -> None:
    log = came_up()
    (line,) = log.lines
    assert line.startswith(f"kvroom {kvroom.__version__}: 21.28 GiB requested (23.64 GiB x 0.9) less weights 14.99 GiB")
    assert line.endswith("leaves 4.75 GiB for the KV cache: 2,429 blocks; attention FLASH_ATTN")
    assert not log.warnings


def test_of_several_engines_the_first_reports(tmp_path: Path) -> None:
    second = config(parallel_config__data_parallel_rank=1)
    path = tmp_path / "ledger.json"
    assert not came_up(second, KVROOM_LEDGER=str(path)).lines
    said(refusal(), a_config=second, KVROOM_LEDGER=str(path))
    assert not path.exists()


def test_the_ledger_is_learned_and_the_next_plan_is_exact(
    tmp_path: Path, store_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ledger.json"
    log = came_up(KVROOM_LEDGER=str(path))
    assert log.lines[-1] == f"kvroom: the ledger of this start is in {path}"
    assert run(["learn", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["new"], told["nothing"]) == (1, [])
    assert told["learned"][0]["source"] == str(path)
    assert told["learned"][0]["gpu"] == "NVIDIA GeForce RTX 4090"

    plan = kvroom.plan(
        MODEL,
        gpu="RTX 4090",
        vllm=RELEASE,
        max_model_len=8192,
        enforce_eager=True,
        gpu_memory_utilization=0.9,
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        offline=True,
    )
    ledger = plan.prediction.ledger
    assert ledger is not None
    assert ledger.available.expected == AVAILABLE
    assert any(Store(store_file).every()[0].id in note for note in plan.notes)
    assert any("with these settings" in note for note in plan.notes)
    assert kvroom.learn(path) == Store(store_file).every()[0]


def test_a_refused_start_leaves_a_ledger_too(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    said(refusal(), KVROOM_LEDGER=str(path))
    data = json.loads(path.read_text("utf-8"))
    assert (data["schema"], data["kind"], data["outcome"]) == ("kvroom/1", "start", "refused")
    assert data["message"] == refusal()
    assert data["agrees"] is True
    assert ["--max-model-len", "36864"] in [each["flags"] for each in data["remedies"]]
    assert data["measurement"]["sizes"]["weights"] == data["ledger"]["weights"]


def test_nothing_private_is_written(tmp_path: Path) -> None:
    private = config(model_config__model="/home/alice/secret-project/Llama-3.1-8B-Instruct")
    path = tmp_path / "ledger.json"
    log = came_up(private, KVROOM_LEDGER=str(path), VLLM_API_KEY="sk-verysecret1234", HF_TOKEN="hf_abc")
    text = path.read_text("utf-8")
    assert json.loads(text)["model"] == "Llama-3.1-8B-Instruct"
    for word in ("alice", "secret", "hf_abc", "KEY"):
        assert word not in text
    assert len(log.warnings) == 1, "the model cannot be priced"
    cached = config(model_config__model="/data/hub/models--org--Model-7B/snapshots/0123abcd")
    came_up(cached, KVROOM_LEDGER=str(path))
    assert json.loads(path.read_text("utf-8"))["model"] == "org/Model-7B"


def test_a_ledger_that_cannot_be_written_is_one_complaint(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no" / "such" / "folder.json"):
        log = came_up(KVROOM_LEDGER=str(place))
        assert len(log.lines) == 1
        assert len(log.warnings) == 1
        assert "KVROOM_LEDGER cannot be written" in log.warnings[0]
        assert not list(tmp_path.iterdir())


def test_a_ledger_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    path.write_text("older")
    with pytest.raises(TypeError):
        write(str(path), {"a": object()})
    assert path.read_text() == "older"
    write(str(path), {"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_other_files_and_damaged_ledgers(tmp_path: Path) -> None:
    assert of_start(b"INFO 01-02 a log", "x") is None
    assert of_start(b"{broken", "x") is None
    assert of_start(b'{"schema": "kvroom/1", "kind": "learned"}', "x") is None
    assert of_start(b'{"schema": "kvroom/1", "kind": "start", "measurement": null}', "x") == (
        "the ledger holds no measurement."
    )
    with pytest.raises(UsageError, match="x: That is no measurement"):
        of_start(b'{"schema": "kvroom/1", "kind": "start", "measurement": {"gpu": 1}}', "x")


def test_a_start_on_a_cpu_teaches_nothing_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = worker(model_runner=None, peak_activation_memory=None, requested_memory=None, requested_cpu_memory=20 * GIB)
    on_cpu = config(device_config__device_type="cpu", cache_config__block_size=128)
    start = start_of(core(UniProcExecutor(bare)), on_cpu, "0.32.0", table(), {}, pool(10))
    data = record(start, account_of(start), None)
    assert data["measurement"] is None
    write(str(tmp_path / "l.json"), data)
    assert run(["learn", str(tmp_path / "l.json")]) == 1
    assert "a CPU has no such ledger" in capsys.readouterr().out
