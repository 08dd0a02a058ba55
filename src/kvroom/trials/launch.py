"""One launch carried out: started, watched, measured, stopped. The same here and on a node of a cluster."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kvroom.trials.figures import Load, Measures, Peak, Sample
from kvroom.trials.memory import Memory
from kvroom.trials.noise import Noise, noise_of
from kvroom.trials.supervise import Process, Server, check_port, free_port, wait_until_ready

PORT = "{port}"
"""Stands in the words of an order for the port, which is chosen where the server starts."""
_LEFT_FOR = 30.0
"""Seconds in which the driver must have back what a server held."""
_BACK = 256 << 20
"""Bytes that may be other programs' doing."""
_STEADY = 0.015
"""A speed is known when its standard error is no larger, relative to the mean: see ``noise``."""
_MORE = 4
"""How many times the repeats are measured to get there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A launch to carry out, with everything that is needed for it."""

    number: int
    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables to set beside those that are there."""
    log: Path
    load: Load
    repeats: int = 3
    noise: Noise = field(default_factory=Noise)
    """What the trials before it show of the machine."""
    proof: int | None = None
    """The length that one request is to have, to prove that it is served."""
    timeout: float = 900.0
    """Seconds for the start."""
    port: int | None = None
    """Where the command itself says it."""
    afterwards: tuple[str, ...] = ()
    """A command that ends what the process left, such as a container."""
    container: str = ""
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a launch came to."""

    ready: float | None
    """Seconds until it served; None where it did not."""
    exit_code: int | None = None
    """Of a server that ended by itself."""
    samples: tuple[Sample, ...] = ()
    peak: Peak | None = None
    notes: tuple[str, ...] = ()
    node: str = ""
    log: bytes | None = None
    """What it printed, where that lies on another machine."""


class Watch(Protocol):
    """Who is told how a launch goes."""

    def stage(self, number: int, name: str) -> None:
        """Trial ``number`` has reached a stage: of the start, or of its measurement."""

    def running(self, number: int, processes: tuple[Process, ...], container: str) -> None:
        """These processes belong to trial ``number``."""


class Launcher(Protocol):
    """Where launches are carried out."""

    @property
    def width(self) -> int:
        """How many at once."""

    def carry_out(self, orders: Sequence[Order], watch: Watch) -> list[Done]:
        """The orders, at most ``width``, in their order."""


def carry_out(order: Order, measure: Measures, memory: Memory, watch: Watch) -> Done:
    """Start the server, wait, measure, stop it. A taken port is given up for another one, once."""
    done = _once(order, measure, memory, watch)
    if done.ready is None and done.exit_code is not None and order.port is None and _port_was_taken(order.log):
        order.log.replace(order.log.with_suffix(".port-taken.log"))
        done = _once(order, measure, memory, watch)
    return done


def _once(order: Order, measure: Measures, memory: Memory, watch: Watch) -> Done:
    port = order.port or free_port()
    check_port("127.0.0.1", port)
    url = f"http://127.0.0.1:{port}"
    words = [word.replace(PORT, str(port)) if PORT in word else word for word in order.words]
    memory.begin()
    samples: list[Sample] = []
    with Server(words, {**os.environ, **order.env}, order.log, order.afterwards) as server:
        watch.running(order.number, server.processes(), order.container)
        watch.stage(order.number, "start")
        ready = wait_until_ready(server, url, order.timeout, memory, lambda name: watch.stage(order.number, name))
        exit_code = server.exit_code()
        if ready is not None:
            with _sampled(memory, server.session):
                samples = _measured(order, url, measure, lambda name: watch.stage(order.number, name))
            exit_code = server.exit_code()
        watch.stage(order.number, "stop")
    return Done(ready=ready, exit_code=exit_code, samples=tuple(samples), peak=memory.peak(), notes=_left(memory))


def _measured(order: Order, url: str, measure: Measures, on_stage: Callable[[str], None]) -> list[Sample]:
    """A warm-up that does not count, the repeats, and the proof of the length; its failure counts, its speed does not.

    The repeats end when the speed is known, or with one whose requests fail.
    """
    on_stage("warm up")
    first = measure(url, order.load.warm_up())
    if first.failures and not first.throughput:
        return [first]  # nothing is served
    samples: list[Sample] = []
    while len(samples) < order.repeats or is_unsteady(
        [sample.throughput for sample in samples], order.repeats, order.noise
    ):
        on_stage(f"measure {len(samples) + 1}/{max(order.repeats, len(samples) + 1)}")
        samples.append(measure(url, order.load))
        if samples[-1].failures:
            return samples
    if order.proof is not None:
        on_stage("longest request")
        proof = measure(url, Load(max(1, order.proof - 8), 8, 1, 1))
        if proof.failures:
            text = proof.problem or "a request of full length was not answered"
            samples.append(Sample(None, None, samples[-1].throughput, failures=proof.failures, problem=text))
    return samples


def is_unsteady(rates: Sequence[float], repeats: int, noise: Noise) -> bool:
    """Whether the speed is known too badly to tell trials apart, and more than ``repeats`` may be measured.

    A few repeats may lie together by luck, so that the ``noise`` of the trials before counts as well.
    """
    deviation = max(noise_of([rates]).deviation or 0.0, noise.deviation or 0.0)
    return deviation / math.sqrt(len(rates)) > _STEADY and len(rates) < _MORE * repeats


@contextmanager
def _sampled(memory: Memory, session: int) -> Iterator[None]:
    """Look at the memory all the while."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            memory.sample(session)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        memory.sample(session)


def _left(memory: Memory) -> tuple[str, ...]:
    """A note where memory stays taken after everything has ended."""
    deadline = time.monotonic() + _LEFT_FOR
    while (left := memory.left()) > _BACK and time.monotonic() < deadline:
        time.sleep(0.5)
    return (f"{left >> 20:,} MiB of GPU memory are still held after the server has ended.",) if left > _BACK else ()


def _port_was_taken(log: Path) -> bool:
    try:
        return b"address already in use" in log.read_bytes()[-200_000:].lower()
    except OSError:
        return False
