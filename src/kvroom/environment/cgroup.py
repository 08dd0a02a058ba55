"""The limits of the control group that this process is in, of version 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from kvroom.environment.numbers import whole
from kvroom.environment.sources import Sources

_BASE = "sys/fs/cgroup"
_NO_LIMIT = 1 << 60
"""Version 1 writes the largest number of pages where there is no limit."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """What the group may use. A limit is the lowest of the group and those above it, None where there is none."""

    version: int | None = None
    """None where there are no control groups to be seen."""
    memory_limit_bytes: int | None = None
    memory_used_bytes: int | None = None
    """Use of the group that has the limit, else of the innermost; the page cache counts."""
    oom_kills: int | None = None
    """Processes that the kernel killed because the group was out of memory."""
    cpu_quota: float | None = None
    """CPUs, e.g. 7.5."""


def read_cgroup(sources: Sources) -> Cgroup:
    """The limits that hold here."""
    if sources.exists(f"{_BASE}/cgroup.controllers"):
        return _version_2(sources)
    if sources.exists(f"{_BASE}/memory") or sources.exists(f"{_BASE}/cpu"):
        return _version_1(sources)
    return Cgroup()


def _version_2(sources: Sources) -> Cgroup:
    groups = list(_groups(_BASE, _path(sources, "")))
    limit, used = _memory(sources, groups, "memory.max", "memory.current")
    quotas = (_quota(*sources.text(f"{group}/cpu.max").split()[:2]) for group in groups)
    kills = (_word(sources.text(f"{group}/memory.events"), "oom_kill") for group in groups)
    return Cgroup(2, limit, used, _first(kills), _least(quotas))


def _version_1(sources: Sources) -> Cgroup:
    groups = list(_groups(f"{_BASE}/memory", _path(sources, "memory")))
    limit, used = _memory(sources, groups, "memory.limit_in_bytes", "memory.usage_in_bytes")
    kills = (_word(sources.text(f"{group}/memory.oom_control"), "oom_kill") for group in groups)
    quotas = (
        _quota(sources.text(f"{group}/cpu.cfs_quota_us"), sources.text(f"{group}/cpu.cfs_period_us"))
        for group in _groups(f"{_BASE}/cpu", _path(sources, "cpu"))
    )
    return Cgroup(1, limit, used, _first(kills), _least(quotas))


def _path(sources: Sources, controller: str) -> str:
    """The group of this process, as its hierarchy names it; version 2 has no controller in the line."""
    for line in sources.text("proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            return path
    return "/"


def _groups(base: str, path: str) -> Iterator[str]:
    """The folders of the group and of those above it; a container sees its own as ``base``."""
    group = PurePosixPath(path.lstrip("/"))
    if ".." not in group.parts:
        for each in (group, *group.parents):
            if each.parts:
                yield f"{base}/{each}"
    yield base


def _memory(sources: Sources, groups: list[str], limit_file: str, used_file: str) -> tuple[int | None, int | None]:
    limits: list[tuple[int, str]] = []
    for group in groups:
        limit = whole(sources.text(f"{group}/{limit_file}"))
        if limit is not None and limit < _NO_LIMIT:
            limits.append((limit, group))
    if not limits:
        return None, _first(whole(sources.text(f"{group}/{used_file}")) for group in groups)
    least, holder = min(limits, key=lambda item: item[0])
    return least, whole(sources.text(f"{holder}/{used_file}"))


def _quota(quota: str = "", period: str = "") -> float | None:
    time, of = whole(quota), whole(period)
    return round(time / of, 2) if time and of else None


def _word(text: str, name: str) -> int | None:
    """The number after ``name`` in lines such as ``oom_kill 3``."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return whole(value)
    return None


def _first(values: Iterator[int | None]) -> int | None:
    return next((value for value in values if value is not None), None)


def _least(values: Iterator[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)
