"""Trials on a Ray cluster: each on a node with enough GPUs, several at once, carried out there as they are here.

What a node needs is the server's own environment; kvroom's code travels with the task.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvroom.errors import UsageError
from kvroom.trials.figures import Measures
from kvroom.trials.launch import Done, Order, Watch, carry_out
from kvroom.trials.memory import GpuMemory, HostMemory, Memory
from kvroom.trials.supervise import Process

MISSING = "pip install 'kvroom[ray]'"
_TICK = 1.0
_CPUS = 1


@dataclass(slots=True)
class RayLauncher:
    """Places launches on the cluster at ``address``, or on one of this machine."""

    measure: Measures
    gpus: int
    """GPUs of one launch."""
    address: str | None = None
    _ray: Any = field(default=None, init=False)

    @property
    def width(self) -> int:
        """As many as have room at once, at least one."""
        resources = self._connected().cluster_resources()
        if self.gpus:
            return max(1, int(resources.get("GPU", 0)) // self.gpus)
        return max(1, int(resources.get("CPU", 1)) // 2)

    def carry_out(self, orders: Sequence[Order], watch: Watch) -> list[Done]:
        """The orders at once, each as a task that Ray starts where there is room."""
        ray = self._connected()
        task = ray.remote(_on_node).options(num_gpus=self.gpus, num_cpus=_CPUS, max_retries=0)
        waiting = [task.remote(order, self.measure) for order in orders]
        for order in orders:
            watch.stage(order.number, "placed on the cluster")
        try:
            while ray.wait(waiting, num_returns=len(waiting), timeout=_TICK)[1]:
                pass
            return [self._done(ray, each) for each in waiting]
        except BaseException:
            for each in waiting:
                ray.cancel(each)  # as Ctrl-C in the task, which stops its server
            ray.wait(waiting, num_returns=len(waiting), timeout=60)
            raise

    @staticmethod
    def _done(ray: Any, task: Any) -> Done:
        try:
            done: Done = ray.get(task)
        except ray.exceptions.RayError as error:
            return Done(ready=None, notes=(f"the cluster lost the trial: {str(error).splitlines()[0]}",))
        return done

    def _connected(self) -> Any:
        if self._ray is None:
            self._ray = _connect(self.address, self.gpus)
        return self._ray


def _connect(address: str | None, gpus: int) -> Any:
    """Ray, connected. Raises UsageError where it is missing, nobody answers, or no node has the GPUs."""
    try:
        import ray
    except ImportError:
        raise UsageError("--launcher ray needs Ray, which is not installed.", MISSING) from None
    if not ray.is_initialized():
        import kvroom

        source = str(Path(kvroom.__file__).parent)
        try:
            ray.init(
                address=address,
                runtime_env={"py_modules": [source]},
                include_dashboard=False if address is None else None,
                log_to_driver=False,
                configure_logging=False,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise UsageError(f"No Ray cluster answers: {str(error).splitlines()[0]}", "Check --ray-address.") from None
    most = max((int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)
    if gpus > most:
        raise UsageError(f"The launch needs {gpus} GPUs, and the largest node has {most}.", "Lower its parallel sizes.")
    return ray


class _Nobody:
    """Nobody listens on the node."""

    def stage(self, number: int, name: str) -> None:
        """Nothing."""
        del number, name

    def running(self, number: int, processes: tuple[Process, ...], container: str) -> None:
        """Nothing: the guard ends the server when the task's process dies."""
        del number, processes, container


def _on_node(order: Order, measure: Measures) -> Done:
    """Carry ``order`` out on the node where this runs; its log comes back with the answer."""
    with tempfile.TemporaryDirectory(prefix="kvroom-") as folder:
        log = Path(folder) / "server.log"
        done = carry_out(replace(order, log=log), measure, _memory(order), _Nobody())
        printed = log.read_bytes()[-20_000_000:] if log.exists() else b""
    return replace(done, log=printed, node=os.uname().nodename)


def _memory(order: Order) -> Memory:
    from kvroom.environment.host import read_host
    from kvroom.environment.sources import local_inventory, local_sources

    if order.gpus:
        return GpuMemory(local_inventory)
    return HostMemory(read_host(local_sources()).memory_total_bytes or 1)
