"""Reads ``/metrics`` again and again while something runs, and sees when nothing runs although it should."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kvroom.server.client import Client
from kvroom.server.generate import Ask, Progress, generate
from kvroom.server.metrics import Sample, parse_metrics
from kvroom.server.outcome import Failed, Failure, Outcome

STUCK_S = 12.0
"""Seconds with a request in and nothing running after which it is taken as stuck."""
SILENT_S = 25.0
"""The same where the server says nothing about itself any more."""
EVERY_S = 0.5
"""How often a single request is looked after."""
_SHARE = 0.02
_SHORTEST_S, _LONGEST_S = 0.1, 1.0
"""Share of a step's time in which figures are read, and the pauses between two readings."""
_LAST_S = 5.0
"""How long a cancelled request may stay in the server's queue."""


class Meter:
    """The figures of one server; ``problem`` says why there are none."""

    def __init__(self, client: Client, stuck_s: float = STUCK_S, silent_s: float = SILENT_S) -> None:
        self._client = client
        self._stuck_s, self._silent_s = stuck_s, silent_s
        self.problem = ""
        self.absent = False
        """It never had any: not asked again."""
        self.samples: list[Sample] = []

    def stall(self) -> Stall:
        """What decides whether the requests sent now are stuck."""
        return Stall(self._stuck_s, self._silent_s)

    async def read(self) -> Sample | None:
        """The figures now; None where they cannot be had."""
        if self.absent:
            return None
        try:
            answer = await self._client.ask("GET", "/metrics", seconds=min(self._client.patience, 5.0))
            if answer.status != 200:
                raise ValueError(f"/metrics answers {answer.status}")
            sample = parse_metrics(answer.text)
        except (Failed, ValueError) as error:
            self.problem = f"{error}"
            return None
        if not sample.known:
            self.problem = "/metrics holds no figures of vLLM"
            return None
        self.problem = ""
        self.samples.append(sample)
        return sample

    async def settles(self) -> bool:
        """Whether the server has forgotten every request in a few seconds, as it should once they are cancelled."""
        ends = time.perf_counter() + _LAST_S
        while time.perf_counter() < ends:
            sample = await self.read()
            if sample is not None and not sample.waiting and not sample.running:
                return True
            await asyncio.sleep(_SHORTEST_S)
        return False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[list[Sample]]:
        """Within it the figures are read; it holds the samples.

        Answering costs the server some milliseconds in which it sends no token, so the pause between two
        readings grows with what one takes.
        """
        self.samples = []

        async def poll() -> None:
            pause = _SHORTEST_S
            while True:
                await asyncio.sleep(pause)
                began = time.perf_counter()
                await self.read()
                took = time.perf_counter() - began
                pause = min(max(took / _SHARE, _SHORTEST_S), _LONGEST_S)

        task = asyncio.create_task(poll())
        try:
            yield self.samples
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Stall:
    """Decides whether requests that are in the server will never be scheduled.

    The signature: nothing running and no KV block in use, a request waiting, and no token comes. While a
    step runs the figures are those from before it, so that nothing waiting has to last longer.
    """

    def __init__(self, stuck_s: float, silent_s: float) -> None:
        self._stuck_s, self._silent_s = stuck_s, silent_s
        self._waits_since: float | None = None

    def seen(self, sample: Sample | None, last_event: float, now: float) -> str:
        """Why it is stuck, or nothing. ``last_event``: when the last token came, or the requests were sent."""
        quiet = now - last_event
        idle = sample is None or (sample.running == 0 and (sample.kv_use or 0.0) < 1e-9)
        if not idle or quiet < EVERY_S:
            self._waits_since = None
            return ""
        if sample is None:
            return f"no token for {quiet:.0f} s, and /metrics does not answer" if quiet >= self._silent_s else ""
        if not sample.waiting:
            self._waits_since = None
            what = f"no token for {quiet:.0f} s while the server says that nothing runs"
            return what if quiet >= self._silent_s else ""
        self._waits_since = now if self._waits_since is None else self._waits_since
        waits = now - self._waits_since
        what = f"waiting {sample.waiting}, running 0, KV cache 0 % for {waits:.0f} s: it is never scheduled"
        return what if waits >= self._stuck_s or quiet >= self._silent_s else ""


async def watched(client: Client, meter: Meter, ask: Ask, seconds: float, progress: Progress | None = None) -> Outcome:
    """``generate``, cancelled as soon as the request is seen to be stuck; the message then says what was seen."""
    progress = progress or Progress()
    task = asyncio.create_task(generate(client, ask, seconds, progress))
    stall = meter.stall()
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=EVERY_S)
            if done:
                return task.result()
            if meter.absent:
                continue  # only the time limit is left
            sample = await meter.read()
            why = stall.seen(sample, progress.last or progress.started, time.perf_counter())
            if why and not task.done():
                break
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    gone = await meter.settles()
    why = f"{why}; cancelled{'' if gone else ', but the server still holds it'}"
    return progress.outcome(Failed(Failure.STUCK, why))
