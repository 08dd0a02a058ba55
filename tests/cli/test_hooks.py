"""The pre-commit hook and the GitHub Action of this repository do what their documents say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import kvroom
from kvroom.cli.main import run

ROOT = Path(__file__).parents[2]
FITS = """\
services:
  a:
    image: vllm/vllm-openai:v0.28.0
    command: --model Qwen/Qwen3-0.6B --max-model-len 4096
"""
FAILS = FITS.replace("0.6B", "32B")
UNKNOWN = FITS.replace("Qwen/Qwen3-0.6B", "/models/x")


def _hook() -> dict[str, Any]:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    return dict(hook)


@pytest.mark.parametrize(("text", "code"), [(FITS, 0), (FAILS, 1), (UNKNOWN, 3), ("a: b\n", 0)])
def test_the_hook_tells_by_its_exit_code(text: str, code: int, tmp_path: Path, capsys) -> None:
    (tmp_path / "c.yaml").write_text(text)
    words = shlex.split(_hook()["entry"])
    assert words[0] == "kvroom"
    assert run([*words[1:], "--gpu", "L4", "--offline", str(tmp_path / "c.yaml")]) == code


@pytest.mark.parametrize(
    ("name", "chosen"), [("a.yaml", True), ("b.yml", True), ("c.sh", True), ("d.json", True), ("e.py", False)]
)
def test_the_hook_is_given_manifests_and_scripts(name: str, chosen: bool) -> None:
    assert (re.search(_hook()["files"], name) is not None) is chosen


def _action() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "action.yml").read_text("utf-8")))


def test_no_input_is_put_into_a_script() -> None:
    for step in _action()["runs"]["steps"]:
        assert "${{" not in step["run"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="the action runs in bash")
@pytest.mark.parametrize(
    ("text", "fail_on", "code", "exit_code"),
    [(FITS, "fails", 0, 0), (FAILS, "fails", 1, 1), (UNKNOWN, "fails", 0, 3), (UNKNOWN, "unknown", 3, 3)],
)
def test_the_action_annotates_and_fails_as_it_is_told(
    text: str, fail_on: str, code: int, exit_code: int, tmp_path: Path
) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "c.yaml").write_text(text)
    program = tmp_path / "kvroom"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvroom "$@"\n')
    program.chmod(0o755)
    (step,) = [each for each in _action()["runs"]["steps"] if each.get("id") == "check"]
    given = {
        "KVROOM": str(program),
        "KVROOM_PATHS": "deploy",
        "KVROOM_GPU": "1x L4",
        "KVROOM_VLLM": "",
        "KVROOM_ARGS": "--offline",
        "KVROOM_SARIF": "out.sarif",
        "KVROOM_FAIL_ON": fail_on,
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "PYTHONPATH": str(Path(kvroom.__file__ or "").parents[1]),
    }
    assert set(step["env"]) <= set(given)
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert (tmp_path / "output").read_text() == f"exit-code={exit_code}\n"
    assert ("::error file=deploy/c.yaml,line=4" in done.stdout) is (text == FAILS)
    assert '"version": "2.1.0"' in (tmp_path / "out.sarif").read_text()
