"""Trials on a Ray cluster of this machine; needs Ray, which is an extra."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.trials.fakes import Listener, Measures, prepared

from kvroom.errors import UsageError
from kvroom.trials.launch import PORT, Done, Order
from kvroom.trials.launchers.ray import RayLauncher


def test_without_ray_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"kvroom\[ray\]"):
        _ = RayLauncher(Measures(), gpus=1).width


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Ray on this machine with two nodes' worth of GPUs that are only said to be there."""
    ray = pytest.importorskip("ray")
    ray.init(
        num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}},
    )  # fmt: skip
    yield ray
    ray.shutdown()


def orders(command: list[str], folder: Path, *lengths: int) -> list[Order]:
    question = prepared(command).question
    words = (*question.command.front, *question.command.tokens, "--port", PORT)
    found = []
    for number, length in enumerate(lengths, 1):
        (folder / str(number)).mkdir()
        found.append(
            Order(
                number=number,
                words=(*words, "--max-model-len", str(length)),
                env=dict(question.command.own_env),
                log=folder / str(number) / "server.log",
                load=question.load,
                repeats=1,
                timeout=60,
                gpus=0,
            )
        )
    return found


@pytest.mark.filterwarnings("ignore")
def test_several_trials_run_at_once_and_their_logs_come_back(cluster: Any, command: list[str], tmp_path: Path) -> None:
    launcher = RayLauncher(Measures(), gpus=0)
    done: list[Done] = launcher.carry_out(orders(command, tmp_path, 4096, 8192, 999_999), Listener())

    assert launcher.width == 2
    assert [each.ready is not None for each in done] == [True, True, False]
    assert all(each.log and b"KV cache size" in each.log for each in done[:2])
    assert done[2].exit_code == 1
    assert all(each.node for each in done)


@pytest.mark.filterwarnings("ignore")
def test_more_gpus_than_any_node_has_is_one_error(cluster: Any) -> None:
    with pytest.raises(UsageError, match="largest node has 2"):
        _ = RayLauncher(Measures(), gpus=4).width
    assert RayLauncher(Measures(), gpus=1).width == 2
