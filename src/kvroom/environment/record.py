"""The record of an environment: GPUs, software, system, limits, variables; nothing private in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kvroom.devices.inventory import Gpu, Inventory
from kvroom.environment.cgroup import Cgroup, read_cgroup
from kvroom.environment.host import Host, System, read_host, read_system
from kvroom.environment.private import Owner, shareable
from kvroom.environment.software import Software, read_software
from kvroom.environment.sources import Sources, local_sources
from kvroom.environment.variables import read_variables
from kvroom.errors import DeviceError, short
from kvroom.redaction import clean


@dataclass(frozen=True, slots=True)
class Record:
    """One environment at one moment, fit for a public report."""

    inventory: Inventory | None
    """None where no GPU can be read."""
    gpu_problem: str
    """Why there is no inventory, one sentence; empty where there is one."""
    software: Software
    system: System
    host: Host
    cgroup: Cgroup
    variables: tuple[tuple[str, str], ...]
    """The relevant environment variables, secrets masked."""


def environment_record(sources: Sources | None = None) -> Record:
    """The record of this machine and this Python, or of ``sources``; what cannot be read is None in it."""
    sources = sources or local_sources()
    inventory, problem = _gpus(sources)
    return Record(
        inventory=inventory,
        gpu_problem=problem,
        software=read_software(sources),
        system=read_system(sources),
        host=read_host(sources),
        cgroup=read_cgroup(sources),
        variables=read_variables(sources),
    )


def _gpus(sources: Sources) -> tuple[Inventory | None, str]:
    try:
        inventory = sources.inventory()
    except DeviceError as error:
        return None, shareable(error.problem, sources.owner)
    return replace(inventory, gpus=tuple(_shareable_gpu(gpu, sources.owner) for gpu in inventory.gpus)), ""


def _shareable_gpu(gpu: Gpu, owner: Owner) -> Gpu:
    processes = (replace(process, name=_program(process.name, owner)) for process in gpu.processes)
    return replace(
        gpu,
        name=clean(gpu.name),
        processes=tuple(processes),
        problem=shareable(gpu.problem, owner),
    )


def _program(name: str, owner: Owner) -> str:
    """What a process runs, without its folder and arguments: both may tell names.

    >>> _program("/home/jane/venv/bin/python3 -m vllm", Owner()), _program("VLLM::EngineCore", Owner())
    ('python3', 'VLLM::EngineCore')
    """
    if re.match(r"/|[A-Za-z]:\\", name):
        name = re.split(r"[/\\]", name.partition(" -")[0])[-1]
    return short(shareable(name, owner), 60)
