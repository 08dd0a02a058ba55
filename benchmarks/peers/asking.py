"""One peer asked about every launch, in a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PATIENCE = 1800
_SAID = 110
Answers = dict[str, dict[str, Any]]


def ask(
    python: Path, adapter: Path, questions: Sequence[Mapping[str, Any]], env: Mapping[str, str], home: Path
) -> Answers:
    """The answers by a launch's id; a launch that got none says why under ``unanswered``.

    A process that ends early or hangs costs the launches that it had not answered.
    """
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    command = [str(python), str(adapter)]
    ended = "its process ended"
    try:
        found = subprocess.run(
            command, input=lines, capture_output=True, text=True, env=env, cwd=home, timeout=_PATIENCE, check=False
        )
        printed = found.stdout
        if found.returncode and found.stderr.strip():
            ended = f"its process ended: {found.stderr.strip().splitlines()[-1]}"
    except subprocess.TimeoutExpired as late:
        printed, ended = _text(late.stdout), f"no answer within {_PATIENCE} s"
    answers = {answer.pop("id"): answer for answer in map(json.loads, printed.splitlines())}
    return {
        question["id"]: _cleaned(answers.get(question["id"], {"unanswered": ended}), question) for question in questions
    }


def _text(printed: bytes | str | None) -> str:
    """Whole lines of what was printed before the end."""
    text = printed.decode() if isinstance(printed, bytes) else printed or ""
    return text[: text.rfind("\n") + 1]


def _cleaned(answer: dict[str, Any], question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer without anything of this run in its reason."""
    reason = answer.get("unanswered")
    if reason is None:
        return answer
    for seen in (question.get("folder"), question.get("model"), question.get("hub")):
        reason = reason.replace(seen, "MODEL") if seen else reason
    return {"unanswered": reason[:_SAID]}
