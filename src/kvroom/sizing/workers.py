"""A search in several processes, or on a Ray cluster: the same answers, since cards do not depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Protocol

from kvroom.devices.device import Device
from kvroom.errors import UsageError
from kvroom.sizing.problem import Problem
from kvroom.sizing.search import Found, Searcher, merged

MOST_JOBS = 256


class Ray(Protocol):
    """What is needed of the ``ray`` package."""

    def init(self, address: str) -> Any:
        """Connect to the cluster at ``address``."""

    def remote(self, function: Callable[..., Any]) -> Any:
        """``function`` as a task."""

    def get(self, tasks: Sequence[Any]) -> list[Any]:
        """The results of ``tasks``, in their order."""


def search_in_processes(problem: Problem, devices: Sequence[Device], jobs: int) -> Found:
    """What ``search`` finds, with the cards dealt over ``jobs`` processes."""
    if not 1 <= jobs <= MOST_JOBS:
        raise UsageError(f"--jobs {jobs}: from 1 to {MOST_JOBS}.")
    from multiprocessing import get_context

    jobs = max(1, min(jobs, len(devices)))
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(problem,)) as pool:
        shares = pool.map(_go_on, dealt(devices, _SHARES * jobs))
        return in_order(devices, [found for share in shares for found in share])


_SHARES = 4
"""Parts of the search for each process: whoever is done takes the next."""
_searchers: list[Searcher] = []
"""In a process of a search, its searcher, which keeps what cards have in common."""


def _begin(problem: Problem) -> None:
    _searchers.append(Searcher(problem))


def _go_on(devices: Sequence[Device]) -> list[tuple[str, int, Found]]:
    return _searched(_searchers[0], devices)


def search_on_ray(problem: Problem, devices: Sequence[Device], address: str, ray: Ray | None = None) -> Found:
    """What ``search`` finds, on the Ray cluster at ``address``; UsageError where ``ray`` is missing or refuses.

    kvroom has to be installed on the cluster's nodes.
    """
    ray = ray if ray is not None else _ray()
    try:
        ray.init(address=address)
    except Exception as error:  # noqa: BLE001 - ray's exceptions have no common base
        raise UsageError(f"Ray at {address} cannot be reached: {error}", "Check --ray, or use --jobs.") from None
    shares = dealt(devices, min(64, max(1, len(devices))))
    task = ray.remote(search_share)
    results = ray.get([task.remote(problem, share) for share in shares])
    return in_order(devices, [found for share in results for found in share])


def search_share(problem: Problem, devices: Sequence[Device]) -> list[tuple[str, int, Found]]:
    """One worker's cards, each with its answer."""
    return _searched(Searcher(problem), devices)


def _searched(searcher: Searcher, devices: Sequence[Device]) -> list[tuple[str, int, Found]]:
    return [(device.id, device.total_bytes, searcher.device(device)) for device in devices]


def dealt(devices: Sequence[Device], shares: int) -> list[list[Device]]:
    """``devices`` in at most ``shares`` parts; cards of one kind stay together, since they share what is resolved."""
    kin = sorted(devices, key=lambda device: (device.vendor, device.compute_capability or (0, 0), device.total_bytes))
    size = -(-len(kin) // shares)
    return [kin[at : at + size] for at in range(0, len(kin), size)]


def in_order(devices: Sequence[Device], found: Sequence[tuple[str, int, Found]]) -> Found:
    """The answers of all workers in the order of ``devices``, as one process would give them."""
    known = {(name, total): each for name, total, each in found}
    return merged(known[device.id, device.total_bytes] for device in devices)


def _ray() -> Ray:
    try:
        from importlib import import_module

        found: Ray = import_module("ray")
    except ImportError:
        raise UsageError("--ray needs the ray package.", "Run: pip install 'kvroom[ray]'") from None
    return found
