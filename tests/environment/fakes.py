"""Sources made up for tests: a folder for ``/``, a dictionary for the environment, GPUs and packages by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvroom.devices.inventory import Inventory
from kvroom.environment.private import Owner
from kvroom.environment.sources import Runtime, Sources
from kvroom.errors import DeviceError
from kvroom.units import MIB

OWNER = Owner(home="/data/people/jane", user="jdoe", host="gpunode7.corp.example")

MEMINFO = """\
MemTotal:       64000 kB
MemFree:            1 kB
MemAvailable:   32000 kB
SwapTotal:          0 kB
SwapFree:           0 kB
"""
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
"""
LINUX = {
    "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n',
    "proc/sys/kernel/osrelease": "6.8.0-48-generic\n",
    "proc/meminfo": MEMINFO,
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9554\n\nprocessor\t: 1\nmodel name\t: other\n",
    "sys/devices/system/cpu/online": "0-31\n",
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-7,16\n",
    "proc/self/limits": LIMITS,
}
"""The files of a machine with 32 CPUs."""


@dataclass
class FakePackages:
    versions: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def version(self, name: str) -> str | None:
        return self.versions.get(name)

    def text(self, name: str, path: str) -> str:
        return self.files.get(path, "")


def no_gpu() -> Inventory:
    raise DeviceError("There is no NVIDIA GPU here (Driver Not Loaded).", "Name the GPU: --gpu H100.")


def shm_of_docker(folder: Path) -> tuple[int, int]:
    assert folder.name == "shm"
    return 64 * MIB, 60 * MIB


def sources(
    root: Path,
    files: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    *,
    packages: FakePackages | None = None,
    inventory: Callable[[], Inventory] = no_gpu,
    owner: Owner = OWNER,
    space: Callable[[Path], tuple[int, int]] = shm_of_docker,
) -> Sources:
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    runtime = Runtime("3.12.3", "Linux", "6.8.0-48-generic", "x86_64", "glibc 2.39")
    return Sources(root, env or {}, owner, runtime, packages or FakePackages(), inventory, space)
