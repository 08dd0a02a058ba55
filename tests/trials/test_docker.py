"""A run whose command is a container: docker is a script here that starts what the container would."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.trials.fakes import prepared, tuner

from kvroom.errors import UsageError
from kvroom.trials.store import Store
from kvroom.trials.supervise import free_port
from kvroom.trials.trial import State

DOCKER = """#!{python}
# runs the command behind the image on this machine; "stop" ends it as docker would
import os, signal, sys
from pathlib import Path
notes = Path({notes!r})
with (notes / "asked").open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "run":
    name = sys.argv[sys.argv.index("--name") + 1]
    (notes / name).write_text(str(os.getpid()))
    image = sys.argv.index("vllm/vllm-openai:v0.32.0")
    for at, word in enumerate(sys.argv):
        if word == "--env":
            variable, _, value = sys.argv[at + 1].partition("=")
            os.environ[variable] = value
    os.environ["PYTHONPATH"] = {fake!r}
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *sys.argv[image + 1 :]]
    os.execv(sys.executable, words)
"""


@pytest.fixture
def docker(tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what docker was asked."""
    notes = tmp_path / "docker"
    notes.mkdir()
    tool = tmp_path / "bin" / "docker"
    tool.parent.mkdir()
    fake = command[0].partition("=")[2]
    tool.write_text(DOCKER.format(python=sys.executable, notes=str(notes), fake=fake), "utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    return notes


def test_each_trial_is_a_container_of_its_own_that_is_stopped_by_name(
    docker: Path, model: str, store: Store, tmp_path: Path
) -> None:
    port = free_port()
    words = ["docker", "run", "-d", "--name", "mine", "-p", f"127.0.0.1:{port}:{port}", "vllm/vllm-openai:v0.32.0"]
    words += ["--model", model, "--port", str(port), "--kv-cache-memory-bytes", str(64 << 20)]
    run = tuner(prepared(words, "context=8k", max_trials=2), store, tmp_path)
    ending, trials = run.tune()

    assert ending.met
    assert [trial.state for trial in trials] == [State.STARTED, State.STARTED]
    assert run.run is not None
    names = [f"kvroom-{run.run.id}-{number}" for number in (1, 2)]
    asked = (docker / "asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["run", "stop", "run", "stop"]
    assert [line.split()[-1] for line in asked[1::2]] == names
    assert asked[0].startswith(f"run --name {names[0]} --rm -p 127.0.0.1:{port}:{port} vllm/vllm-openai:v0.32.0")
    assert asked[2].split()[-6:-4] == ["--max-model-len", "8192"]
    assert ending.command[:3] == ("docker", "run", "-d")  # as it was given


def test_a_container_that_cannot_be_reached_is_refused_before_a_run_is_kept(docker: Path, model: str) -> None:
    with pytest.raises(UsageError, match="publishes no port"):
        prepared(["docker", "run", "vllm/vllm-openai:v0.32.0", "--model", model], "context=8k")


def test_an_interrupted_container_is_removed_by_name(docker: Path, model: str, store: Store, tmp_path: Path) -> None:
    port = free_port()
    words = ["docker", "run", "-p", f"{port}:8000", "vllm/vllm-openai:v0.32.0", "--model", model]
    ready = prepared([*words, "--kv-cache-memory-bytes", str(1 << 20)], "context=4k", max_trials=1)
    run, _ = store.take(ready.question.key, ready.question.asked())
    store.begin(run, 1, {}, tmp_path)
    store.note_processes(run, 1, (), "kvroom-left-1")
    store.leave(run)

    tuner(ready, store, tmp_path).tune()
    asked = (docker / "asked").read_text().splitlines()
    assert asked[:2] == ["stop --time 15 kvroom-left-1", "rm --force kvroom-left-1"]
