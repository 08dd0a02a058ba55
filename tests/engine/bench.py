"""The load of ``kvroom verify`` beside that of ``vllm bench serve``, on the same server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvroom.server.measure import Measured, measure
from kvroom.server.workload import fixed
from tests.engine.serving import HERE, NAME, SETTINGS, interpreter

INPUT, OUTPUT = 100, 100
"""A request of two blocks."""


class Bench:
    """vLLM's own load generator, ready to run; ``run`` starts it and ``result`` waits for what it wrote."""

    def __init__(self, url: str, model: Path, folder: Path, requests: int, concurrency: int) -> None:
        words = ["--backend", "openai", "--base-url", url, "--model", NAME, "--tokenizer", str(model)]
        words += ["--dataset-name", "random", "--random-input-len", str(INPUT), "--random-output-len", str(OUTPUT)]
        words += ["--num-prompts", str(requests), "--max-concurrency", str(concurrency), "--ignore-eos"]
        self._file = folder / "bench.json"
        self._seed = 1000
        self._log = (folder / "bench.log").open("w")
        self._child = subprocess.Popen(
            [str(interpreter()), str(HERE / "bench_serve.py"), *words, "--disable-tqdm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **SETTINGS},
        )

    def run(self) -> None:
        self._seed += 1
        assert self._child.stdin is not None
        self._child.stdin.write(f"{self._file} {self._seed}\n")
        self._child.stdin.flush()

    def result(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == "done\n", f"see {self._log.name}"
        found: dict[str, Any] = json.loads(self._file.read_text("utf-8"))
        return found

    def end(self) -> None:
        for stream in (self._child.stdin, self._child.stdout, self._log):
            if stream is not None:
                stream.close()
        self._child.wait(60)


@contextmanager
def paced() -> Iterator[str]:
    """A server in a process of its own that keeps time."""
    code = (
        "import sys\n"
        "from tests.server.fake import Behaviour, FakeServer\n"
        f"how = Behaviour(model={NAME!r}, step_s=0.025, seats=8, max_model_len=None, num_blocks=2000)\n"
        "with FakeServer(how) as server:\n"
        "    print(server.url, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=HERE.parents[1]) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        yield child.stdout.readline().strip()
        child.stdin.close()


def ours(url: str, requests: int, concurrency: int, seed: int = 0) -> Measured:
    load = fixed(INPUT, OUTPUT)
    return measure(url, load, concurrency=concurrency, requests=requests, pool=False, seed=seed)
