"""Asks a release of vLLM, running in a child process, what its planner says."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SERVER = Path(__file__).with_name("server.py")


class Planner:
    """One release's planner; ``with`` it, then ``ask``."""

    def __init__(self, python: Path, tree: Path | None, log: Path) -> None:
        self.asked = 0
        self._log = log.open("w")
        environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "CUDA_VISIBLE_DEVICES": ""}
        if tree is not None:
            environment["PYTHONPATH"] = str(tree)
        self._child = subprocess.Popen(
            [str(python), str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self._ready = False

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """vLLM's answer; raises RuntimeError when the child broke rather than vLLM refused."""
        if not self._ready:
            self._read()
            self._ready = True
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(question) + "\n")
        self._child.stdin.flush()
        self.asked += 1
        answer = self._read()
        if "fault" in answer:
            raise RuntimeError(answer["fault"])
        return answer

    def _read(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"The planner process ended; see {self._log.name}.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.terminate()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout, self._log):
            if stream is not None:
                stream.close()
