"""Where the record comes from: system files, environment variables, packages, drivers. Tests give their own."""

from __future__ import annotations

import getpass
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Protocol

from kvroom.devices.inventory import Inventory
from kvroom.environment.private import Owner
from kvroom.errors import DeviceError
from kvroom.files import read_limited

_LONGEST = 3_000_000
"""Bytes of a system file: /proc/cpuinfo of a thousand CPUs has half of it, and sysctls refuse reads of 4 MiB."""


class Packages(Protocol):
    """The Python packages of an environment, read without importing them."""

    def version(self, name: str) -> str | None:
        """The version of the distribution ``name``, None when it is not installed."""

    def text(self, name: str, path: str) -> str:
        """A file of it, empty when it cannot be read."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What Python says of itself and the system; empty where it does not know."""

    python: str
    system: str
    """``Linux``, ``Darwin``, ``Windows``."""
    release: str
    """Of the kernel."""
    machine: str
    libc: str


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that the record reads."""

    root: Path
    """The folder that stands for ``/``."""
    env: Mapping[str, str]
    owner: Owner
    runtime: Runtime
    packages: Packages
    inventory: Callable[[], Inventory]
    """The GPUs; raises DeviceError when there is none."""
    space: Callable[[Path], tuple[int, int]]
    """Total and free bytes of the file system at a folder; raises OSError."""

    def text(self, path: str) -> str:
        """The text of a system file, empty when it is missing, damaged or may not be read."""
        try:
            return read_limited(self.root / path, _LONGEST).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder, as far as can be told."""
        try:
            return (self.root / path).exists()
        except (OSError, ValueError):
            return False


def local_sources() -> Sources:
    """Those of this machine and this Python."""
    return Sources(
        root=Path("/"),
        env=os.environ,
        owner=_owner(),
        runtime=Runtime(
            python=platform.python_version(),
            system=platform.system(),
            release=platform.release(),
            machine=platform.machine(),
            libc=" ".join(platform.libc_ver()).strip(),
        ),
        packages=_Installed(),
        inventory=local_inventory,
        space=_space,
    )


def local_inventory() -> Inventory:
    """The NVIDIA GPUs here, else the AMD ones; raises DeviceError when there are neither."""
    from kvroom.devices.probe import NvmlProbe
    from kvroom.devices.rocm import RocmProbe

    try:
        return NvmlProbe().inventory()
    except DeviceError as no_nvidia:
        try:
            return RocmProbe().inventory()
        except DeviceError:
            raise no_nvidia from None


class _Installed:
    def version(self, name: str) -> str | None:
        try:
            return metadata.version(name)
        except (metadata.PackageNotFoundError, OSError, ValueError, KeyError):  # none, or damaged
            return None

    def text(self, name: str, path: str) -> str:
        try:
            file = Path(str(metadata.distribution(name).locate_file(path)))
            return read_limited(file, _LONGEST).decode("utf-8", "replace")
        except (metadata.PackageNotFoundError, OSError, ValueError):
            return ""


def _owner() -> Owner:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no entry
        user = ""
    return Owner(home=os.path.expanduser("~").removeprefix("~"), user=user, host=platform.node())  # noqa: PTH111


def _space(folder: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(folder)
    return usage.total, usage.free
