"""The child process: its answer is taken, its failure named, and nothing of it is left."""

from __future__ import annotations

import os
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kvroom.tracing.engines import Engine
from kvroom.tracing.question import Inquiry, Question
from kvroom.tracing.run import Answer, TraceFailed, ask

FAILED = """os.write(fd, b'{"failed": {"step": "build", "kind": "KeyError", "message": "x", "where": ""}}')"""
VALIDATED = r"""os.write(fd, json.dumps({"failed": {"step": "configure", "kind": "ValidationError", "where": "",
"message": "1 validation error for ModelConfig\n  Value error, Value too large.\nLower it. [type=value_error, x]"}}
).encode())"""
CARD = {"name": "card", "capability": [9, 0], "total": 1, "used": 0}
ONE = Inquiry(CARD, {}, (Question(("--model", "x")),))
ANSWER = """{"answer": {"vllm_version": "0.28.0", "settings": {}, "weights": 5, "activation": 6, "requested": 7,
"backends": {}, "pools": [], "phase": "forward", "place": "a.py: f",
"at_peak": [{"bytes": 1, "shape": [2, 3], "dtype": "torch.float32", "operator": "a"}],
"runner": "r", "missing_operators": ["_C::x"], "unsure": {"item": 2}, "seconds": 1.5, "peak_rss": 9}}"""


def engine(folder: Path, code: str) -> Engine:
    """An environment whose interpreter runs ``code`` with the answer's descriptor as ``fd``."""
    path = folder / "python"
    program = f"import json, os, sys, time\nasked = json.load(sys.stdin)\nfd = int(sys.argv[4])\n{code}\n"
    (folder / "child.py").write_text(program, "utf-8")
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {folder / "child.py"} "$@"\n', "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Engine(path, (folder,), "0.28.0", "kept")


def test_steps_are_heard_and_the_answer_taken(tmp_path: Path) -> None:
    line = ANSWER.replace("\n", " ")
    steps: list[str] = []

    said = ask(
        engine(tmp_path, f'os.write(fd, b\'{{"step": "one", "at": 0}}\\n\' + {line.encode()!r} + b\'\\n\')'),
        ONE,
        steps.append,
    )

    (answer,) = said
    assert isinstance(answer, Answer)
    assert steps == ["one"]
    assert (answer.weights, answer.activation, answer.guessed) == (5, 6, ("_C::x", "item"))
    assert answer.at_peak[0].dtype == "float32"


@pytest.mark.parametrize(
    ("code", "step", "says"),
    [
        (FAILED, "build", "KeyError: x"),
        (VALIDATED, "configure", "ValidationError: Value too large. Lower it."),
        ("print('No module named vllm', file=sys.stderr); sys.exit(1)", "start", "No module named vllm"),
        ("os.kill(os.getpid(), 9)", "start", "signal 9"),
        ("time.sleep(600)", "start", "no answer within"),
    ],
)  # fmt: skip
def test_a_failure_is_named(tmp_path: Path, code: str, step: str, says: str) -> None:
    (failed,) = ask(engine(tmp_path, code), ONE, lambda _: None, patience_s=2.0)

    assert isinstance(failed, TraceFailed)
    assert failed.step == step
    assert says in failed.problem


def test_a_configuration_that_an_old_transformers_does_not_know_is_tried_with_the_newer_one(tmp_path: Path) -> None:
    """The first folder of the path is the older one's; only the question that failed is asked again."""
    line = ANSWER.replace("\n", " ").encode() + b"\n"
    unknown = FAILED.replace("build", "resolve the configuration").replace("}}", "}}\\n")
    code = f"""old = os.environ["PYTHONPATH"].count(os.pathsep)
for number, _ in enumerate(asked["questions"]):
    if old and number == 1:
        {unknown}
    else:
        os.write(fd, {line!r})
"""
    both = replace(engine(tmp_path, code), pythonpath=(tmp_path / "old", tmp_path))
    three = Inquiry(CARD, {}, ONE.questions * 3)

    answers = [each for each in ask(both, three, lambda _: None) if isinstance(each, Answer)]
    assert [each.newer_transformers for each in answers] == [False, True, False]
    code = f"import pathlib; pathlib.Path('{tmp_path}/asked').open('a').write(str(len(asked['questions'])))\n" + code
    ask(replace(engine(tmp_path, code), pythonpath=(tmp_path / "old", tmp_path)), three, lambda _: None)
    assert (tmp_path / "asked").read_text() == "31"


def test_each_question_has_an_answer_or_a_reason(tmp_path: Path) -> None:
    """The second fails and the process dies before the third."""
    line = ANSWER.replace("\n", " ").encode()
    code = f"os.write(fd, {line!r} + b'\\n'); {FAILED.replace('}}', '}}' + chr(92) + 'n')}; os.kill(os.getpid(), 9)"

    first, second, third = ask(
        engine(tmp_path, code), Inquiry(CARD, {}, ONE.questions * 3), lambda _: None, patience_s=5.0
    )

    assert isinstance(first, Answer)
    assert isinstance(second, TraceFailed)
    assert second.step == "build"
    assert isinstance(third, TraceFailed)
    assert "signal 9" in third.problem


def test_a_child_that_started_others_takes_them_along(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    start = "import subprocess\np = subprocess.Popen(['sleep', '600'])"
    code = f"{start}\nopen({str(note)!r}, 'w').write(str(p.pid))\ntime.sleep(600)"

    ask(engine(tmp_path, code), ONE, lambda _: None, patience_s=2.0)

    pid = int(note.read_text("utf-8"))
    for _ in range(100):
        if not _runs(pid):
            break
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text("utf-8").split()[2] != "Z"
