"""The operating system and what the host gives: memory, CPUs, shared memory, open files."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvroom.environment.numbers import count_of_list, field, kib_field, whole
from kvroom.environment.sources import Sources
from kvroom.redaction import clean

_BY_PATH = {
    "kubernetes": re.compile(r"kubepods|/kubelet/pods/"),
    "docker": re.compile(r"/docker[/-]"),
    "podman": re.compile(r"/libpod-|/containers/storage/"),
    "containerd": re.compile(r"containerd"),
    "lxc": re.compile(r"/lxc[./]"),
}


@dataclass(frozen=True, slots=True)
class System:
    """The operating system; empty where unknown."""

    name: str
    """As the distribution writes it, e.g. ``Ubuntu 24.04.1 LTS``."""
    kernel: str
    machine: str
    libc: str
    container: str | None
    """``docker``, ``kubernetes``, ...; None where nothing tells of one."""
    wsl: bool | None
    """Whether it is Linux on Windows (WSL)."""


@dataclass(frozen=True, slots=True)
class Host:
    """Bytes and counts of the whole host, whatever a control group leaves of them; None where unknown."""

    memory_total_bytes: int | None
    memory_available_bytes: int | None
    swap_total_bytes: int | None
    swap_free_bytes: int | None
    shm_total_bytes: int | None
    """Of the shared memory in /dev/shm, where vLLM's workers exchange tensors."""
    shm_free_bytes: int | None
    cpu_model: str
    cpus: int | None
    cpus_usable: int | None
    """Those that this process may run on."""
    open_files_soft: int | None
    open_files_hard: int | None


def read_system(sources: Sources) -> System:
    """What system this is."""
    runtime = sources.runtime
    kernel = sources.text("proc/sys/kernel/osrelease").strip() or runtime.release
    named = re.search(r'^PRETTY_NAME="?([^"\n]+)', sources.text("etc/os-release"), re.MULTILINE)
    return System(
        name=clean(named[1].strip() if named else runtime.system),
        kernel=clean(kernel),
        machine=runtime.machine,
        libc=runtime.libc,
        container=_container(sources),
        wsl="microsoft" in kernel.lower() if kernel else None,
    )


def _container(sources: Sources) -> str | None:
    env = sources.env
    if "KUBERNETES_SERVICE_HOST" in env:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in env or "SINGULARITY_CONTAINER" in env:
        return "apptainer"
    if sources.exists("run/.containerenv"):
        return "podman"
    paths = sources.text("proc/1/cgroup")
    mounts = sources.text("proc/self/mountinfo").splitlines()
    paths += "\n".join(line for line in mounts if " / / " in line or " /etc/host" in line)
    found = next((name for name, pattern in _BY_PATH.items() if pattern.search(paths)), None)
    return found or ("docker" if sources.exists(".dockerenv") else None)


def read_host(sources: Sources) -> Host:
    """What the host has and has left."""
    memory = sources.text("proc/meminfo")
    shm = _shm(sources)
    files = re.search(r"^Max open files +(\S+) +(\S+)", sources.text("proc/self/limits"), re.MULTILINE)
    return Host(
        memory_total_bytes=kib_field(memory, "MemTotal"),
        memory_available_bytes=kib_field(memory, "MemAvailable"),
        swap_total_bytes=kib_field(memory, "SwapTotal"),
        swap_free_bytes=kib_field(memory, "SwapFree"),
        shm_total_bytes=shm[0],
        shm_free_bytes=shm[1],
        cpu_model=clean(field(sources.text("proc/cpuinfo"), "model name")),
        cpus=count_of_list(sources.text("sys/devices/system/cpu/online")),
        cpus_usable=count_of_list(field(sources.text("proc/self/status"), "Cpus_allowed_list")),
        open_files_soft=whole(files[1]) if files else None,
        open_files_hard=whole(files[2]) if files else None,
    )


def _shm(sources: Sources) -> tuple[int, int] | tuple[None, None]:
    try:
        return sources.space(sources.root / "dev/shm")
    except OSError:
        return None, None
