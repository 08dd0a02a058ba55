"""Asking vLLM's own code: a child process in an engine's environment answers questions and leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from kvroom.redaction import clean
from kvroom.tracing.engines import Engine
from kvroom.tracing.question import Inquiry

CHILD = Path(__file__).parent / "child"
PATIENCE_S = 600.0
"""Seconds that one trace may take; the largest models take a minute."""
_BOOT = """
import importlib.util, sys
home = sys.argv[1]
spec = importlib.util.spec_from_file_location("kvroom_child", home + "/__init__.py", submodule_search_locations=[home])
package = importlib.util.module_from_spec(spec)
sys.modules["kvroom_child"] = package
spec.loader.exec_module(package)
from kvroom_child.main import main
main(int(sys.argv[2]))
"""
_VALIDATION = re.compile(
    r"validation errors? for \w+\n\s*(?:Value error, |Assertion failed, )?(.*?) \[type=", re.DOTALL
)
CONFIGURATION = "resolve the configuration"
"""The step at which vLLM refuses what it is told, or does not understand it."""
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME")
"""Variables that the child inherits; what steers vLLM comes with the question alone."""


class TraceFailed(Exception):
    """vLLM's own code could not be run to the end: at which step, and why."""

    def __init__(self, step: str, problem: str, where: str = "") -> None:
        super().__init__(f"{step}: {problem}")
        self.step, self.problem, self.where = step, clean(problem), where


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor alive at the peak of the profile run."""

    n_bytes: int
    shape: tuple[int, ...]
    dtype: str
    operator: str
    """What allocated it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What vLLM's own code says of one rank."""

    vllm_version: str
    settings: dict[str, Any]
    """Under vLLM's argument names."""
    weights: int
    """Bytes, as ``Model loading took`` reports them."""
    activation: int
    """Bytes of the profile run's peak above what stays."""
    requested: int
    backends: dict[str, int]
    """Attention layers by backend."""
    pools: tuple[dict[str, Any], ...]
    """For each size asked: ``available``, ``num_blocks``, ``tokens``, ``max_concurrency``, or ``error``."""
    at_peak: tuple[Tensor, ...]
    """The largest first."""
    phase: str
    """Of the profile run, in which the peak is reached: ``forward``, ``sampler``, ``pooler``, ``encoder``."""
    place: str
    """The function of vLLM that is at work then, as ``file: function``."""
    runner: str
    guessed: tuple[str, ...]
    """Operators that did nothing, or whose result depends on data."""
    seconds: float
    peak_rss: int
    """Bytes of main memory that the child took."""
    newer_transformers: bool = False
    """The release's own transformers did not understand the configuration, the base's does."""


class Asker(Protocol):
    """Something that answers questions about launches with vLLM's own code."""

    def __call__(self, engine: Engine, inquiry: Inquiry, on_step: Callable[[str], None]) -> list[Answer | TraceFailed]:
        """For each question its answer, or why there is none."""


def ask(
    engine: Engine, inquiry: Inquiry, on_step: Callable[[str], None], patience_s: float = PATIENCE_S
) -> list[Answer | TraceFailed]:
    """For each question of ``inquiry`` the answer of ``engine``, or the step at which vLLM's code stopped.

    ``on_step`` hears of each step; each try may take ``patience_s`` seconds a question.
    The child is ended whatever happens, and its files are removed. An engine may have a transformers of its release's
    time before the base's; a configuration that is not understood with it is tried with the newer one, as whoever
    serves such a model has installed it.
    """
    found = _asked(engine, inquiry, on_step, patience_s)
    unknown = [at for at, each in enumerate(found) if isinstance(each, TraceFailed) and each.step == CONFIGURATION]
    if unknown and len(engine.pythonpath) > 1:
        newer = replace(engine, pythonpath=engine.pythonpath[1:])
        again = replace(inquiry, questions=tuple(inquiry.questions[at] for at in unknown))
        for at, answer in zip(unknown, _asked(newer, again, on_step, patience_s), strict=True):
            found[at] = replace(answer, newer_transformers=True) if isinstance(answer, Answer) else found[at]
    return found


def _asked(
    engine: Engine, inquiry: Inquiry, on_step: Callable[[str], None], patience_s: float
) -> list[Answer | TraceFailed]:
    with TemporaryDirectory(prefix="kvroom-trace-") as folder, (Path(folder) / "output").open("w+b") as output:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as events:
            child = subprocess.Popen(  # noqa: S603 - the engine's own interpreter
                [str(engine.python), "-c", _BOOT, str(CHILD), str(writing)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                cwd=folder,
                env=_environment(engine, folder),
                start_new_session=True,
            )
            os.close(writing)
            try:
                assert child.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    child.stdin.write(inquiry.text().encode())
                    child.stdin.close()
                with _ended_after(child, patience_s * len(inquiry.questions)) as late:
                    found = list(_heard(events, on_step))
                    child.wait()
            finally:
                _end(child)
        missing = len(inquiry.questions) - len(found)
        if missing:
            output.seek(0)
            words = f"no answer within {patience_s:.0f} s" if late else _last_words(output.read(), child.returncode)
            found += [TraceFailed("start", words)] * missing
    return found


def _environment(engine: Engine, folder: str) -> dict[str, str]:
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return env | {
        "PYTHONPATH": os.pathsep.join(map(str, engine.pythonpath)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "VLLM_CACHE_ROOT": f"{folder}/cache",
        "VLLM_CONFIG_ROOT": f"{folder}/config",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }


def _heard(events: Any, on_step: Callable[[str], None]) -> Iterator[Answer | TraceFailed]:
    """What the lines of ``events`` say of each question."""
    for line in events:
        said = json.loads(line)
        if "step" in said:
            on_step(said["step"])
        elif "failed" in said:
            failed = said["failed"]
            yield TraceFailed(failed["step"], _plain(failed["kind"], failed["message"]), failed["where"])
        else:
            yield _answer(said["answer"])


def _plain(kind: str, message: str) -> str:
    """The error in one line, without what pydantic wraps around it."""
    found = _VALIDATION.search(message)
    return " ".join(f"{kind}: {found[1] if found else message}".split())


def _answer(data: dict[str, Any]) -> Answer:
    return Answer(
        vllm_version=data["vllm_version"],
        settings=data["settings"],
        weights=data["weights"],
        activation=data["activation"],
        requested=data["requested"],
        backends=data["backends"],
        pools=tuple(data["pools"]),
        at_peak=tuple(
            Tensor(each["bytes"], tuple(each["shape"]), each["dtype"].removeprefix("torch."), each["operator"])
            for each in data["at_peak"]
        ),
        phase=data["phase"],
        place=data["place"],
        runner=data["runner"],
        guessed=(*data["missing_operators"], *data["unsure"]),
        seconds=data["seconds"],
        peak_rss=data["peak_rss"],
    )


@contextlib.contextmanager
def _ended_after(child: subprocess.Popen[bytes], seconds: float) -> Iterator[list[bool]]:
    """End ``child`` when ``seconds`` are over; the list then holds something."""
    import threading

    late: list[bool] = []

    def end() -> None:
        late.append(True)
        _end(child)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and all that it started."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _last_words(output: bytes, code: int | None) -> str:
    lines = [line for line in output[-4000:].decode("utf-8", "replace").splitlines() if line.strip()]
    if code is not None and code < 0:
        return f"the process was killed by signal {-code}; main memory may have run out"
    return clean(lines[-1][:500]) if lines else f"the process ended with code {code} and said nothing"
