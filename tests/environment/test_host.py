from __future__ import annotations

from pathlib import Path

import pytest
from tests.environment.fakes import LINUX, sources

from kvroom.environment.host import read_host, read_system
from kvroom.units import KIB, MIB


def test_a_linux_host(tmp_path: Path) -> None:
    here = sources(tmp_path, LINUX)
    system, host = read_system(here), read_host(here)
    assert (system.name, system.kernel, system.machine) == ("Ubuntu 24.04.1 LTS", "6.8.0-48-generic", "x86_64")
    assert (system.libc, system.container, system.wsl) == ("glibc 2.39", None, False)
    assert (host.memory_total_bytes, host.memory_available_bytes) == (64000 * KIB, 32000 * KIB)
    assert (host.swap_total_bytes, host.swap_free_bytes) == (0, 0)
    assert (host.shm_total_bytes, host.shm_free_bytes) == (64 * MIB, 60 * MIB)
    assert (host.cpu_model, host.cpus, host.cpus_usable) == ("AMD EPYC 9554", 32, 9)
    assert (host.open_files_soft, host.open_files_hard) == (1024, 524288)


def test_without_any_file_all_is_unknown(tmp_path: Path) -> None:
    def no_space(folder: Path) -> tuple[int, int]:
        raise FileNotFoundError(folder)

    here = sources(tmp_path, space=no_space)
    host = read_host(here)
    assert {getattr(host, name) for name in host.__slots__} == {None, ""}
    assert read_system(here).name == "Linux"
    assert read_system(here).kernel == "6.8.0-48-generic"


def test_wsl_is_told_by_the_kernel(tmp_path: Path) -> None:
    files = {"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"}
    assert read_system(sources(tmp_path, files)).wsl is True


@pytest.mark.parametrize(
    ("files", "env", "container"),
    [
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "apptainer"),
        ({"proc/1/cgroup": "0::/kubepods/besteffort/pod1\n"}, {}, "kubernetes"),
        ({"proc/1/cgroup": "4:memory:/docker/0123\n"}, {}, "docker"),
        ({"proc/1/cgroup": "0::/init.scope\n"}, {}, None),
        (
            {"proc/self/mountinfo": "1 2 0:50 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l\n"},
            {},
            "docker",
        ),
        ({"proc/self/mountinfo": "9 2 8:1 /var/lib/docker /mnt/docker rw - ext4 /dev/sda rw\n"}, {}, None),
    ],
)
def test_containers(tmp_path: Path, files: dict[str, str], env: dict[str, str], container: str | None) -> None:
    assert read_system(sources(tmp_path, files, env)).container == container
