"""``kvroom tune`` with the real vLLM: a goal that is met, a start that is cured, a kvroom that is killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine import environment, tiny

pytestmark = pytest.mark.engine
KVROOM = [sys.executable, "-m", "kvroom"]
ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
LOAD = ["--concurrency", "2", "--requests", "4", "--input-len", "32", "--output-len", "8", "--repeats", "1"]
START_S = 600
"""Seconds for one start: a machine that is busy otherwise takes minutes."""


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that serve the tiny model."""
    pytest.importorskip("sqlalchemy")
    python = environment.python()
    if python is None:
        pytest.skip("no vLLM here: run tests/engine/environment.py first")
    model = tiny.make(tmp_path_factory.mktemp("model") / "tiny", python)
    assigned = [f"{name}={value}" for name, value in ENV.items()]
    module = ["env", "-u", "PYTHONPATH", str(python), "-m", "vllm.entrypoints.openai.api_server"]
    words = ["--model", str(model), "--load-format", "dummy", "--enforce-eager"]
    return [*assigned, *module, *words, "--distributed-executor-backend", "uni"]


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """kvroom with a store of its own."""
    store = f"sqlite:///{tmp_path / 'trials.sqlite3'}"
    return [*KVROOM, "tune", "--store", store, "--offline", "--start-timeout", str(START_S), *LOAD]


def run(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """kvroom, with its logs in ``folder``; what it says goes to a file there."""
    env = {**os.environ, "KVROOM_RUNS": str(folder / "runs")}
    with (folder / "said").open("a") as said:
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=said, text=True, env=env)


def trials(store: str) -> dict[str, Any]:
    """The last run as ``kvroom trials`` shows it."""
    done = subprocess.run(
        [*KVROOM, "trials", "last", "--store", store, "--json"], capture_output=True, text=True, check=False
    )
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"trials": []}
    return found


def servers(marker: str) -> list[int]:
    """Processes that were started with ``marker`` in their environment, vLLM's children as well."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and marker.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_context_goal_is_met_by_six_launches_though_kvroom_is_killed_in_the_middle(
    command: list[str], asked: list[str], tmp_path: Path
) -> None:
    marker = f"KVROOM_TEST_MARK={tmp_path.name}-{os.getpid()}"
    words = [*asked, "--goal", "context=16k", "--max-trials", "6", "--json", "--env", marker, "--", *command]
    words += ["--max-model-len", "2048", "--kv-cache-memory-bytes", str(64 << 20)]
    store = asked[asked.index("--store") + 1]

    first = run(words, tmp_path)
    deadline = time.monotonic() + 4 * START_S
    while len(trials(store)["trials"]) < 2 or not servers(marker):
        assert first.poll() is None, (tmp_path / "said").read_text()
        assert time.monotonic() < deadline
        time.sleep(2)
    time.sleep(3)  # into the third start
    before = [trial["number"] for trial in trials(store)["trials"]]
    first.kill()
    first.communicate()
    gone = time.monotonic() + 60
    while servers(marker) and time.monotonic() < gone:
        time.sleep(0.5)
    assert servers(marker) == []

    second = run(words, tmp_path)
    printed, _ = second.communicate(timeout=6 * START_S)
    said = (tmp_path / "said").read_text()
    assert second.returncode == 0, said
    data = json.loads(printed)
    assert servers(marker) == []
    assert "taken up after" in said
    assert said.count("\ntrial 1 (launch 1 of at most 6)") + said.startswith("trial 1 (") == 1
    assert [trial["number"] for trial in data["trials"]][: len(before)] == before
    launched = [trial for trial in data["trials"] if trial["state"] != "skipped"]
    assert [trial["state"] for trial in launched] == ["started"] * 6
    assert [trial["proposal"]["changes"]["max_model_len"] for trial in launched[:4]] == [2048, 4096, 8192, 16384]
    assert all(trial["figures"]["kv_tokens"] == trial["forecast"]["kv_tokens"] == 65536 for trial in launched)
    assert all(trial["figures"]["failures"] == 0 for trial in launched)
    assert all(trial["figures"]["peak"]["used_bytes"] > 200 << 20 for trial in launched)
    assert data["ending"]["met"]
    assert "16384" in data["ending"]["command"]


def test_a_launch_that_fails_is_cured_by_what_its_log_says(
    command: list[str], asked: list[str], tmp_path: Path
) -> None:
    """The ledger knows that it fails; it is launched all the same, so that the real engine says it."""
    words = [*asked, "--goal", "context=4k", "--max-trials", "2", "--launch-all", "--json", "--", *command]
    done = run([*words, "--kv-cache-memory-bytes", str(1 << 20)], tmp_path)
    printed, _ = done.communicate(timeout=4 * START_S)
    assert done.returncode == 0, (tmp_path / "said").read_text()
    first, second = json.loads(printed)["trials"]

    assert (first["state"], first["forecast"]["status"]) == ("failed", "fails")
    assert first["finding"] == "KVR203 one-request-does-not-fit"
    assert {"max_model_len": 896} in first["remedies"]
    assert "estimated maximum model length is 896" in first["forecast"]["message"]
    assert second["state"] == "started"
    assert second["proposal"]["step"] == {"kv_cache_memory_bytes": 5 << 20}
    assert "KVR203" in second["proposal"]["why"]


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a Ray cluster of this machine with room for two trials."""
    ray = pytest.importorskip("ray")
    context = ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield context.address_info["address"]
    ray.shutdown()


def test_two_trials_run_at_once_on_a_ray_cluster(
    cluster: str, command: list[str], asked: list[str], tmp_path: Path
) -> None:
    placed = ["--launcher", "ray", "--ray-address", cluster]
    words = [*asked, "--goal", "context=16k", "--max-trials", "3", *placed, "--json", "--", *command]
    done = run([*words, "--kv-cache-memory-bytes", str(64 << 20)], tmp_path)
    printed, _ = done.communicate(timeout=6 * START_S)
    assert done.returncode == 0, (tmp_path / "said").read_text()

    first, *others = json.loads(printed)["trials"]
    assert [trial["state"] for trial in (first, *others)] == ["started"] * 3
    assert [trial["proposal"]["changes"]["max_model_len"] for trial in others] == [8192, 16384]
    assert all(trial["node"] for trial in (first, *others))
    begins, ends = zip(*(_times(Path(trial["log"])) for trial in others), strict=True)
    assert max(begins) < min(ends)


def _times(log: Path) -> tuple[str, str]:
    """The first and the last moment of a log, within one year."""
    found = re.findall(r" (\d\d-\d\d \d\d:\d\d:\d\d) ", log.read_text("utf-8", "replace"))
    return found[0], found[-1]
