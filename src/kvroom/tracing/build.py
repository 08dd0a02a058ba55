"""What every part of a build uses: where it builds, with which programs, and how it fails."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from kvroom.tracing.keep import Keep
from kvroom.tracing.pip import PipFailed, Progress, Tools
from kvroom.tracing.pip_errors import disk_full, pip_error
from kvroom.tracing.wheels import Wheel, open_wheel
from kvroom.units import from_gib

_GLIBC = ("1", "2010", "2014", "_2_17", "_2_24", "_2_26", "_2_27", "_2_28", "_2_31", "_2_34", "_2_35", "_2_39")
_ANY_MACHINE = [part for glibc in _GLIBC for part in ("--platform", f"manylinux{glibc}_x86_64")]
"""Only Python files are taken from a wheel, so the most common machine's serves every machine."""
_DOWNLOAD = ["download", "--no-deps", "--only-binary=:all:", "--python-version", "3.12", "--no-cache-dir"]


@dataclass(frozen=True, slots=True)
class Site:
    """One build."""

    keep: Keep
    tools: Tools
    said: Progress
    work: Path
    """A folder of its own beside the result; it is discarded at the end."""

    def pip(self, python: Path, task: str, *arguments: str) -> None:
        """Run pip; raises the error that its output tells, as one of ``task``."""
        try:
            self.tools.pip(python, arguments, self.work / "tmp", self.said)
        except PipFailed as failed:
            raise pip_error(failed.lines, task, self.keep.folder) from None

    def download(self, python: Path, requirement: str) -> Wheel:
        """The wheel of one requirement, for whatever machine; PipFailed where pip fails."""
        store = self.work / "wheels"
        arguments = [*_DOWNLOAD, *_ANY_MACHINE, "-d", str(store), requirement]
        self.tools.pip(python, arguments, self.work / "tmp", self.said)
        need = Requirement(requirement)
        every = [open_wheel(path) for path in store.glob("*.whl")]  # of this build: pip leaves what it has
        fitting = [
            wheel
            for wheel in every
            if wheel.distribution == canonicalize_name(need.name)
            and need.specifier.contains(wheel.version, prereleases=True)
        ]
        if not fitting:
            raise PipFailed([f"pip downloaded no wheel for {requirement}"])
        return max(fitting, key=lambda wheel: Version(wheel.version))

    def need_room(self, gib: float) -> None:
        """Raise InstallError where the disk has less than ``gib`` GiB free."""
        needed, free = from_gib(gib), shutil.disk_usage(self.work).free
        if free < needed:
            raise disk_full(self.keep.folder, needed, free)


def versions_in(folder: Path) -> dict[str, str]:
    """The distributions that lie in a folder, by canonical name."""
    found = metadata.distributions(path=[str(folder)])
    return {canonicalize_name(one.metadata["Name"]): one.version for one in found if one.metadata["Name"]}


def site_packages(environment: Path) -> Path:
    """Where a virtual environment keeps its packages."""
    folders = [*sorted(environment.glob("lib/python*/site-packages")), environment / "Lib" / "site-packages"]
    return folders[0]
