"""Whole runs against a server that only looks like vLLM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.trials.fakes import Listener, Measures, prepared, tuner

from kvroom.errors import StoreError
from kvroom.trials.store import Store
from kvroom.trials.trial import State

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
POOL = ["--kv-cache-memory-bytes", str(64 << 20)]


def test_a_run_reaches_its_goal_and_says_why(command: list[str], store: Store, tmp_path: Path) -> None:
    listener, measures = Listener(), Measures()
    ending, trials = tuner(prepared([*command, *POOL]), store, tmp_path, listener, measures).tune()

    assert ending.met
    assert [trial.changes["max_model_len"] for trial in trials[:3]] == [4096, 8192, 16384]
    assert all(trial.state is State.STARTED for trial in trials)
    assert all(trial.figures and trial.figures.kv_tokens == 65536 == trial.forecast.kv_tokens for trial in trials)
    assert ending.command[-6:-4] == ("--max-model-len", "16384")
    assert "context=16384 is met" in ending.why[0]
    assert "4.00 times" in ending.margin[0]
    assert max(load.input_len for load in measures.samples) == 16384 - 8  # the proof
    assert sum(load.input_len > 4096 for load in measures.samples) == 1
    assert {name for _, name in listener.stages} >= {"start", "measure 1/1", "longest request", "stop"}


def test_logs_are_kept_trial_by_trial(command: list[str], store: Store, tmp_path: Path) -> None:
    run = tuner(prepared([*command, *POOL], max_trials=2), store, tmp_path)
    _, trials = run.tune()

    assert run.run is not None
    assert [trial.log for trial in trials] == [
        str(tmp_path / run.run.id / f"trial-{number:03}" / "server.log") for number in (1, 2)
    ]
    assert all("KV cache size" in Path(trial.log).read_text() for trial in trials)


def test_what_the_ledger_rules_out_is_recorded_and_not_launched(
    command: list[str], store: Store, tmp_path: Path
) -> None:
    words = [*command, "--kv-cache-memory-bytes", str(9 << 20)]
    ending, trials = tuner(prepared(words), store, tmp_path).tune()

    skipped = [trial for trial in trials if trial.state is State.SKIPPED]
    assert len(skipped) == 1
    assert skipped[0].changes["max_model_len"] == 16384
    assert "kv_sizing: To serve at least one request" in skipped[0].reason
    assert not skipped[0].log
    assert ending.met
    assert any("kv_cache_memory_bytes" in trial.proposal.step for trial in trials)


def test_a_start_that_fails_is_diagnosed_and_cured(command: list[str], store: Store, tmp_path: Path) -> None:
    words = [*command, "--kv-cache-memory-bytes", str(1 << 20)]
    ending, trials = tuner(prepared(words, "context=4k", launch_all=True), store, tmp_path).tune()

    assert trials[0].state is State.FAILED
    assert trials[0].forecast.status == "fails"
    assert trials[0].finding.startswith("KVR203")
    assert {"max_model_len": 896} in trials[0].remedies
    assert trials[1].state is State.STARTED
    assert set(trials[1].proposal.step) == {"kv_cache_memory_bytes"}
    assert ending.met


def test_nothing_that_meets_the_goal_ends_with_the_nearest(command: list[str], store: Store, tmp_path: Path) -> None:
    words = [*command, *POOL]
    ready = prepared(words, "context=32k", limits=("peak<1MiB",))
    ending, _ = tuner(ready, store, tmp_path).tune()

    assert not ending.met
    assert ending.best is not None
    assert any("peak<" in said and "broken" in said for said in ending.why)


def test_a_server_that_dies_while_it_is_measured_is_a_failed_trial(
    command: list[str], store: Store, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"

    def kill(count: int) -> None:
        if count == 2:  # in the second trial
            os.kill(int(pids.read_text().splitlines()[-1].split()[0]), signal.SIGKILL)
            time.sleep(0.5)

    words = [f"FAKE_LOG_PID={pids}", *command, *POOL]
    _, trials = tuner(prepared(words, max_trials=3), store, tmp_path, measures=Measures(before=kill)).tune()

    assert [trial.state for trial in trials[:2]] == [State.STARTED, State.FAILED]
    assert "did not serve" in trials[1].reason


def test_a_port_that_was_taken_meanwhile_is_given_up_once(command: list[str], store: Store, tmp_path: Path) -> None:
    words = [f"FAKE_PORT_TAKEN={tmp_path / 'taken'}", *command, *POOL]
    _, trials = tuner(prepared(words, max_trials=1), store, tmp_path).tune()

    assert trials[0].state is State.STARTED
    assert Path(trials[0].log).with_suffix(".port-taken.log").exists()


SCRIPT = """
import sys, json, time
from pathlib import Path
from kvroom.trials.store import Store
from tests.trials.fakes import Listener, Measures, prepared, tuner
command, url, folder, hang = json.loads(sys.argv[1])
def before(count):
    if count == hang:
        print("measuring", flush=True); time.sleep(600)
tuner(prepared(command), Store(url), Path(folder), measures=Measures(before=before)).tune()
"""


def interrupted(command: list[str], store: Store, folder: Path, hang: int, number: int = signal.SIGKILL) -> None:
    """A run in a process of its own that gets a signal while it measures."""
    asked = json.dumps([command, store.url, str(folder), hang])
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, asked], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "measuring\n"
    child.send_signal(number)
    child.wait(60)
    child.stdout.close()


def alive(pids: Path) -> list[int]:
    return [pid for line in pids.read_text().splitlines() if (pid := int(line.split()[0])) and _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_that_was_killed_goes_on_without_repeating_and_leaves_no_orphan(
    command: list[str], store: Store, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    words = [f"FAKE_LOG_PID={pids}", *command, *POOL]
    interrupted(words, store, tmp_path, hang=2)
    (run,) = store.runs()
    assert len(store.trials(run)) == 1
    assert len(store.unfinished(run)) == 1

    listener = Listener()
    ending, trials = tuner(prepared(words), store, tmp_path, listener).tune()

    assert ending.met
    assert any("taken up after 1 finished" in said for said in listener.said)
    assert len(store.runs()) == 1
    lengths = [int(line.split()[1]) for line in pids.read_text().splitlines()]
    assert lengths[:4] == [4096, 8192, 8192, 16384]  # the second was interrupted, and none is repeated
    assert [trial.number for trial in trials[:3]] == [1, 2, 3]
    assert alive(pids) == []


def test_a_result_that_was_not_stored_any_more_is_taken_from_its_folder(
    command: list[str], store: Store, tmp_path: Path
) -> None:
    words = [*command, *POOL]
    ready = prepared(words, max_trials=1)
    first = tuner(ready, store, tmp_path)

    class Full(Store):
        def finish(self, *_: Any) -> None:
            raise StoreError("The disk is full.")

    first._store = Full(store.url)
    with pytest.raises(StoreError):
        first.tune()
    (run,) = store.runs()
    assert len(store.unfinished(run)) == 1

    listener = Listener()
    _, trials = tuner(ready, store, tmp_path, listener).tune()

    assert len(trials) == 1
    assert not any(said.startswith("launch") for said in listener.said)


def test_ctrl_c_stops_the_server_and_gives_the_run_up(command: list[str], store: Store, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    words = [f"FAKE_LOG_PID={pids}", *command, *POOL]

    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuner(prepared(words), store, tmp_path, measures=Measures(before=interrupt)).tune()
    assert alive(pids) == []
    assert store.take(store.runs()[0].key, {})[1]


def test_secrets_of_the_command_are_not_stored(command: list[str], store: Store, tmp_path: Path) -> None:
    words = ["HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz123456", *command, *POOL, "--api-key", "sk-verysecretkey123"]
    tuner(prepared(words, max_trials=1), store, tmp_path).tune()

    kept = Path(store.url.removeprefix("sqlite:///")).read_bytes()
    assert b"sk-verysecretkey123" not in kept
    assert b"hf_abcdefghijklmnopqrstuvwxyz123456" not in kept
