"""A server under the guard: real processes, none of which may be left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvroom.errors import UsageError
from kvroom.trials.memory import HostMemory
from kvroom.trials.supervise import (
    Process,
    Server,
    check_port,
    end_orphans,
    free_port,
    healthy,
    started_at,
    wait_until_ready,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def started(words: list[str], log: Path, port: int, **env: str) -> Server:
    """The fake server under the guard."""
    assigned = dict(word.split("=", 1) for word in words if "=" in word.split("/")[0])
    rest = [word for word in words if "=" not in word.split("/")[0]]
    return Server([*rest, "--port", str(port)], {**os.environ, **assigned, **env}, log)


def members(session: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z" and int(fields[3]) == session:
                found.append(int(entry.name))
    return found


def ready(server: Server, port: int, timeout: float = 20) -> float | None:
    return wait_until_ready(server, f"http://127.0.0.1:{port}", timeout, HostMemory(1 << 40), lambda stage: None)


def test_a_server_comes_up_in_its_own_session_and_ends_with_all_its_children(
    command: list[str], tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "log"
    memory = HostMemory(1 << 40)
    with started(command, log, port, FAKE_CHILD="1") as server:
        assert ready(server, port) is not None
        assert healthy(f"http://127.0.0.1:{port}")
        assert len(members(server.session)) == 2
        assert os.getsid(server.session) == server.session != os.getsid(0)
        memory.sample(server.session)
        pids = server.processes()
        assert all(process.alive() for process in pids)

    peak = memory.peak()
    assert peak is not None
    assert peak.used_bytes > 1 << 20
    assert members(server.session) == []
    assert not any(process.alive() for process in pids)
    assert not healthy(f"http://127.0.0.1:{port}")


def test_a_server_that_ends_by_itself_is_noticed_at_once(command: list[str], tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    begun = time.monotonic()
    with started([*command, "--max-model-len", "999999"], log, port, FAKE_CHILD="1") as server:
        assert ready(server, port) is None
        assert server.exit_code() == 1
    assert time.monotonic() - begun < 60
    assert "To serve at least one request" in log.read_text()
    assert members(server.session) == []


def test_a_program_that_is_not_there_is_an_exit_code_and_a_line(tmp_path: Path) -> None:
    with Server([str(tmp_path / "nothing")], dict(os.environ), tmp_path / "log") as server:
        assert ready(server, free_port()) is None
        assert server.exit_code() == 127
    assert "No such file" in (tmp_path / "log").read_text()


def test_a_start_that_takes_too_long_is_given_up(command: list[str], tmp_path: Path) -> None:
    port = free_port()
    with started(command, tmp_path / "log", port, FAKE_SLOW="60") as server:
        assert ready(server, port, timeout=1) is None
        assert server.exit_code() is None
    assert members(server.session) == []


def test_a_server_that_ignores_the_request_to_end_is_killed(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvroom.trials.supervise.GRACE", 1.0)
    port = free_port()
    with started(command, tmp_path / "log", port, FAKE_STUBBORN="1") as server:
        assert ready(server, port) is not None
    assert server.exit_code() == 128 + signal.SIGKILL
    assert members(server.session) == []


def test_when_kvroom_is_killed_its_server_ends(command: list[str], tmp_path: Path) -> None:
    """A process that starts the server as kvroom does is killed with SIGKILL."""
    port, log = free_port(), tmp_path / "log"
    assigned = command[0].split("=", 1)
    code = (
        "import os, sys, time; from pathlib import Path; from kvroom.trials.supervise import Server\n"
        f"env = {{**os.environ, {assigned[0]!r}: {assigned[1]!r}, 'FAKE_CHILD': '1'}}\n"
        f"with Server({[*command[1:], '--port', str(port)]!r}, env, Path({str(log)!r})) as server:\n"
        "    print(server.session, flush=True); time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    session = int(parent.stdout.readline())
    deadline = time.monotonic() + 60
    while not healthy(f"http://127.0.0.1:{port}") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert members(session)

    parent.kill()
    parent.wait()
    parent.stdout.close()
    while members(session) and time.monotonic() < deadline + 20:
        time.sleep(0.1)
    assert members(session) == []


def test_what_a_kvroom_that_died_left_is_ended_by_its_process_ids(command: list[str], tmp_path: Path) -> None:
    port = free_port()
    with started(command, tmp_path / "log", port) as server:
        assert ready(server, port) is not None
        assert end_orphans(server.processes()) == 2
        assert members(server.session) == []


def test_another_process_with_the_same_id_is_left_alone() -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        moment = started_at(other.pid)
        assert moment is not None
        assert end_orphans([Process(other.pid, moment - 1), Process(other.pid, None)]) == 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_taken_port_is_said_so() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(UsageError, match="is taken"):
            check_port("127.0.0.1", listener.getsockname()[1])
    check_port("127.0.0.1", free_port())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells the server of it")
def test_when_the_guard_itself_is_killed_the_server_ends_too(command: list[str], tmp_path: Path) -> None:
    port = free_port()
    with started(command, tmp_path / "log", port) as server:
        assert ready(server, port) is not None
        guard = server.processes()[0]
        os.kill(guard.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while members(server.session) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert members(server.session) == []
