"""The record of an environment as JSON data of schema ``kvroom/1``: sizes in bytes, null where unknown."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kvroom.devices.inventory import Gpu
from kvroom.environment.record import Record
from kvroom.report.schema import SCHEMA


def environment_data(record: Record) -> dict[str, Any]:
    """The whole record, ready for ``json.dumps``."""
    inventory, software, system, host = record.inventory, record.software, record.system, record.host
    return {
        "schema": SCHEMA,
        "kind": "env",
        "kvroom_version": software.kvroom,
        "gpus": [_gpu(gpu) for gpu in inventory.gpus] if inventory else [],
        "gpu_vendor": inventory.vendor if inventory else None,
        "gpu_problem": record.gpu_problem or None,
        "driver_version": inventory.driver if inventory else None,
        "driver_cuda": inventory.cuda if inventory else None,
        "packages": dict(software.packages),
        "torch_cuda": software.torch_cuda,
        "torch_hip": software.torch_hip,
        "cuda_toolkit": software.cuda_toolkit,
        "python": software.python or None,
        "system": {
            "name": system.name or None,
            "kernel": system.kernel or None,
            "machine": system.machine or None,
            "libc": system.libc or None,
            "container": system.container,
            "wsl": system.wsl,
        },
        "memory": {
            "total_bytes": host.memory_total_bytes,
            "available_bytes": host.memory_available_bytes,
            "swap_total_bytes": host.swap_total_bytes,
            "swap_free_bytes": host.swap_free_bytes,
        },
        "shm": {"total_bytes": host.shm_total_bytes, "free_bytes": host.shm_free_bytes},
        "cgroup": asdict(record.cgroup),
        "cpus": {"model": host.cpu_model or None, "count": host.cpus, "usable": host.cpus_usable},
        "open_files": {"soft": host.open_files_soft, "hard": host.open_files_hard},
        "variables": dict(record.variables),
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "name": gpu.name or None,
        "architecture": gpu.architecture,
        "total_bytes": gpu.total_bytes,
        "used_bytes": gpu.used_bytes,
        "free_bytes": gpu.free_bytes,
        "reserved_bytes": gpu.reserved_bytes,
        "mig": gpu.mig,
        "processes": [
            {"pid": process.pid, "name": process.name or None, "used_bytes": process.used_bytes}
            for process in gpu.processes
        ],
        "problem": gpu.problem or None,
    }
