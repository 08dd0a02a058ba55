from __future__ import annotations

from pathlib import Path

import pytest
from tests.environment.fakes import sources

from kvroom.environment.cgroup import Cgroup, read_cgroup
from kvroom.units import GIB

CG = "sys/fs/cgroup"


def test_the_lowest_limit_of_a_version_2_group_and_those_above_it_holds(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/kubepods.slice/pod1/box\n",
        f"{CG}/cgroup.controllers": "cpu memory\n",
        f"{CG}/kubepods.slice/memory.max": f"{100 * GIB}\n",
        f"{CG}/kubepods.slice/memory.current": f"{90 * GIB}\n",
        f"{CG}/kubepods.slice/pod1/memory.max": f"{32 * GIB}\n",
        f"{CG}/kubepods.slice/pod1/memory.current": f"{31 * GIB}\n",
        f"{CG}/kubepods.slice/pod1/cpu.max": "750000 100000\n",
        f"{CG}/kubepods.slice/pod1/box/memory.max": "max\n",
        f"{CG}/kubepods.slice/pod1/box/memory.current": "5\n",
        f"{CG}/kubepods.slice/pod1/box/memory.events": "low 0\noom 4\noom_kill 3\n",
        f"{CG}/kubepods.slice/pod1/box/cpu.max": "max 100000\n",
    }
    assert read_cgroup(sources(tmp_path, files)) == Cgroup(2, 32 * GIB, 31 * GIB, 3, 7.5)


def test_a_container_sees_its_own_group_as_the_base(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/system.slice/docker-abc.scope\n",
        f"{CG}/cgroup.controllers": "memory\n",
        f"{CG}/memory.max": "1000\n",
        f"{CG}/memory.current": "400\n",
    }
    assert read_cgroup(sources(tmp_path, files)) == Cgroup(2, 1000, 400, None, None)


def test_version_1(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "9:cpuset:/x\n4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
        f"{CG}/memory/memory.limit_in_bytes": "2000\n",
        f"{CG}/memory/memory.usage_in_bytes": "1900\n",
        f"{CG}/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        f"{CG}/cpu/cpu.cfs_quota_us": "150000\n",
        f"{CG}/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert read_cgroup(sources(tmp_path, files)) == Cgroup(1, 2000, 1900, 2, 1.5)


def test_the_number_that_version_1_writes_for_no_limit_is_none(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/\n3:cpu:/\n",
        f"{CG}/memory/memory.limit_in_bytes": "9223372036854771712\n",
        f"{CG}/memory/memory.usage_in_bytes": "1900\n",
        f"{CG}/cpu/cpu.cfs_quota_us": "-1\n",
        f"{CG}/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert read_cgroup(sources(tmp_path, files)) == Cgroup(1, None, 1900, None, None)


@pytest.mark.parametrize("line", ["", "0::/../../other\n", "nonsense", "0::\n", "0::/a/../../../../proc\n"])
def test_a_damaged_or_foreign_path_falls_back_to_the_base(tmp_path: Path, line: str) -> None:
    files = {"proc/self/cgroup": line, f"{CG}/cgroup.controllers": "", f"{CG}/memory.max": "77"}
    assert read_cgroup(sources(tmp_path, files)).memory_limit_bytes == 77


def test_without_control_groups_nothing_is_known(tmp_path: Path) -> None:
    assert read_cgroup(sources(tmp_path)) == Cgroup()
