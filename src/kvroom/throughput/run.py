"""A run of requests through the engine, step by step: vLLM's scheduler as far as it decides times.

Waiting requests are admitted in their order while sequences, tokens of a step and KV blocks last; running ones decode
first; prompts are cut into chunks; where the cache is full the last one admitted starts again. Steps in which nothing
changes are taken together. Mirrors v1/core/sched/scheduler.py: schedule.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

MOST_STEPS = 2_000_000


@dataclass(slots=True)
class Request:
    """One request, and what became of it. Seconds from the start of the run."""

    arrival: float
    prompt: int
    answer: int
    first: float = -1.0
    """When its first token came."""
    last: float = -1.0
    done: int = 0
    """Prompt tokens computed, those of the answer included after a new start."""
    made: int = 0
    """Answer tokens made."""
    ends: int = 0
    """The step at which it is finished, while it decodes."""
    began: int = 0
    """The step at which it started to decode, less the tokens it had made."""
    running: bool = False
    mark: int = 0
    """Tokens that had been given out when it was preempted: what was given since has taken its blocks."""

    @property
    def ttft(self) -> float:
        """Seconds to its first token."""
        return self.first - self.arrival

    @property
    def tpot(self) -> float:
        """Seconds for each further token."""
        return (self.last - self.first) / max(self.answer - 1, 1)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the scheduler keeps to."""

    sequences: int
    step_tokens: int
    pool_tokens: int
    """Tokens that the KV cache holds."""
    keeps: bool = True
    """Blocks of ended and preempted requests can be found again (prefix caching)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The four figures of a run. Seconds and tokens a second."""

    ttft: float
    tpot: float
    throughput: float
    """Answer tokens a second."""
    duration: float
    preemptions: int
    requests: tuple[Request, ...]


Step = Callable[[int, float, int, float], float]
"""Seconds of a step: decoding sequences, their mean context, prompt tokens, what those look back at."""


def run(requests: Iterable[Request], limits: Limits, step: Step, concurrency: int | None = None) -> Outcome:
    """The run of ``requests``, which come when they say, or whenever fewer than ``concurrency`` are in the server."""
    return _Engine(list(requests), limits, step, concurrency).run()


@dataclass
class _Engine:
    everything: list[Request]
    limits: Limits
    step: Step
    concurrency: int | None
    now: float = 0.0
    number: int = 0
    """Of the step."""
    waiting: deque[Request] = field(default_factory=deque)
    filling: deque[Request] = field(default_factory=deque)
    """Admitted, with prompt tokens left."""
    stack: list[Request] = field(default_factory=list)
    """Admitted, in their order; finished ones are dropped lazily."""
    ending: list[tuple[int, int, Request]] = field(default_factory=list)
    held: int = 0
    """Tokens in the cache."""
    decoding: int = 0
    contexts: int = 0
    """Tokens of all decoding sequences."""
    preemptions: int = 0
    served: int = 0
    given: int = 0
    """Tokens given out so far: who was preempted finds again what nobody took since (prefix caching)."""

    def run(self) -> Outcome:
        coming = deque(sorted(self.everything, key=lambda request: request.arrival))
        if self.concurrency is not None:
            for _ in range(min(self.concurrency, len(coming))):
                self.waiting.append(coming.popleft())
        while self.served < len(self.everything) and self.number < MOST_STEPS:
            if self.concurrency is None:
                while coming and coming[0].arrival <= self.now:
                    self.waiting.append(coming.popleft())
                if not self.waiting and not self.filling and not self.decoding and coming:
                    self.now = coming[0].arrival
                    continue
            self._admit()
            before = self.served
            self._advance(coming[0].arrival if coming and self.concurrency is None else None)
            if self.concurrency is not None:
                for _ in range(self.served - before):
                    if coming:
                        request = coming.popleft()
                        request.arrival = self.now
                        self.waiting.append(request)
        return self._outcome()

    def _admit(self) -> None:
        budget = self.limits.step_tokens - self.decoding - sum(r.prompt + r.made - r.done for r in self.filling)
        while self.waiting and budget > 0 and self.decoding + len(self.filling) < self.limits.sequences:
            request = self.waiting[0]
            size = request.prompt + request.made
            alone = not self.decoding and not self.filling
            if self.held + size + self.decoding > self.limits.pool_tokens and not alone:
                return
            self.waiting.popleft()
            kept = max(0, size - 1 - (self.given - request.mark)) if request.made and self.limits.keeps else 0
            request.running, request.done = True, kept
            self.filling.append(request)
            self.stack.append(request)
            self.held += size
            self.given += size - kept
            budget -= size - kept

    def _advance(self, next_arrival: float | None) -> None:
        """One step with prompt tokens, or as many without as nothing changes in."""
        while self.decoding > 1 and self.held + self.decoding > self.limits.pool_tokens:
            self._preempt()
        budget = max(0, self.limits.step_tokens - self.decoding)
        chunk, looked, ready = 0, 0.0, []
        while self.filling and chunk < budget:
            request = self.filling[0]
            left = request.prompt + request.made - request.done
            part = min(left, budget - chunk)
            looked += part * (request.done + part / 2)
            request.done += part
            chunk += part
            if part == left:
                ready.append(self.filling.popleft())
        mean = self.contexts / self.decoding if self.decoding else 0.0
        if not chunk and not self.decoding:
            raise AssertionError("the scheduler has nothing to do")
        seconds = self.step(self.decoding, mean, chunk, looked / chunk if chunk else 0.0)
        count = 1
        if not chunk and not self.filling:
            count = self._quiet(seconds, next_arrival)
            seconds = self.step(self.decoding, mean + (count - 1) / 2, 0, 0.0)
        self.now += count * seconds
        self.number += count
        self.held += count * self.decoding
        self.given += count * self.decoding
        self.contexts += count * self.decoding
        self._finish()
        for request in ready:
            self._start(request)

    def _quiet(self, seconds: float, next_arrival: float | None) -> int:
        """Steps until a sequence ends, the cache is full, or somebody comes who could be admitted."""
        count = self.ending[0][0] - self.number
        count = min(count, max(1, (self.limits.pool_tokens - self.held) // self.decoding))
        if next_arrival is not None and self.decoding < self.limits.sequences:
            count = min(count, max(1, int((next_arrival - self.now) / seconds) + 1))
        return max(1, count)

    def _start(self, request: Request) -> None:
        """A request whose prompt is computed: it has one more token, and decodes on."""
        if request.first < 0:
            request.first = self.now
        request.made += 1
        self.held += 1
        if request.made >= request.answer:
            self._end(request)
            return
        request.began = self.number - request.made
        request.ends = self.number + request.answer - request.made
        self.decoding += 1
        self.contexts += request.prompt + request.made
        heapq.heappush(self.ending, (request.ends, id(request), request))

    def _finish(self) -> None:
        while self.ending and self.ending[0][0] <= self.number:
            ends, _, request = heapq.heappop(self.ending)
            if not request.running or request.ends != ends:
                continue
            self.decoding -= 1
            self.contexts -= request.prompt + request.answer
            request.made = request.answer
            self._end(request)
        while self.ending and not (self.ending[0][2].running and self.ending[0][2].ends == self.ending[0][0]):
            heapq.heappop(self.ending)

    def _end(self, request: Request) -> None:
        request.last, request.running = self.now, False
        self.held -= request.prompt + request.answer
        self.served += 1

    def _preempt(self) -> None:
        """The last one admitted that decodes gives its blocks back and waits in front."""
        for place in range(len(self.stack) - 1, -1, -1):
            request = self.stack[place]
            if not request.running:
                del self.stack[place]
            elif request.ends > self.number:
                del self.stack[place]
                request.made = self.number - request.began
                request.running, request.ends, request.mark = False, 0, self.given
                self.decoding -= 1
                self.contexts -= request.prompt + request.made
                self.held -= request.prompt + request.made
                self.waiting.appendleft(request)
                self.preemptions += 1
                return
        raise AssertionError("nothing can be preempted")

    def _outcome(self) -> Outcome:
        done = [request for request in self.everything if request.last >= 0]
        count = max(len(done), 1)
        tokens = sum(request.answer for request in done)
        longer = [request for request in done if request.answer > 1]
        return Outcome(
            sum(request.ttft for request in done) / count,
            sum(request.tpot for request in longer) / max(len(longer), 1),
            tokens / self.now if self.now else 0.0,
            self.now,
            self.preemptions,
            tuple(self.everything),
        )
