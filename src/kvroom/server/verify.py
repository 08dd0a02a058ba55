"""The whole verification of one server, and what it found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from kvroom.errors import ServerError
from kvroom.server.address import Access
from kvroom.server.basics import Served, choose, health, models, version, wrong_model
from kvroom.server.boundary import Boundary, boundary
from kvroom.server.check import CURES, Check, Held
from kvroom.server.client import PATIENCE, Budget, Client
from kvroom.server.generate import Ask
from kvroom.server.lengths import Prompts, chat_text, prompts_for
from kvroom.server.limits import NO_TARGETS, Cause, Limit, Targets
from kvroom.server.meter import SILENT_S, STUCK_S, Meter
from kvroom.server.outcome import Failed, Failure
from kvroom.server.pool import Pool, measure_pool, pool_check
from kvroom.server.ramp import Ramp, levels_to, ramp, replay
from kvroom.server.small import small_requests
from kvroom.server.step import Load
from kvroom.server.workload import Workload, fixed
from kvroom.vllm.releases import Release

_INPUT, _OUTPUT = 256, 64
_BUSY = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What to verify, and within which bounds."""

    model: str | None = None
    max_model_len: int | None = None
    """Where the server does not say it."""
    chat: bool = False
    workload: Workload | None = None
    """None: 256 tokens in and 64 out, less for a shorter context."""
    levels: tuple[int, ...] | None = None
    """None: 1, 2, 4, ... until a limit is met; else the last one must be reached."""
    requests: int | None = None
    """Of each level."""
    targets: Targets = NO_TARGETS
    boundary: bool = True
    ramp: bool = True
    max_requests: int = 1000
    max_seconds: float = 600.0
    timeout: float = 120.0
    """Seconds for one request."""
    stuck_s: float = STUCK_S
    silent_s: float = SILENT_S
    """Seconds after which a request that is never scheduled, or a server without a word, is given up."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a server said and did."""

    url: str
    release: Release | None
    served: tuple[Served, ...]
    model: str | None
    max_model_len: int | None
    checks: tuple[Check, ...]
    boundary: Boundary | None = None
    pool: Pool | None = None
    workload: Workload | None = None
    chat: bool = False
    targets: Targets = NO_TARGETS
    ramp: Ramp | None = None
    requests_sent: int = 0
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing fails."""
        return all(check.held is not Held.FAILS for check in self.checks)


def verify(url: str, access: Access, wishes: Wishes, say: Callable[[str], None] = lambda _: None) -> Verification:
    """Ask the server at ``url`` (from ``parse_address``) everything; ``say`` is told each step.

    Raises ServerError where there is no server, or none that can be asked, and UsageError for wishes that
    it cannot meet.
    """
    return asyncio.run(_verify(url, access, wishes, say))


async def _verify(url: str, access: Access, wishes: Wishes, say: Callable[[str], None]) -> Verification:
    budget = Budget(wishes.max_requests, wishes.max_seconds)
    async with Client(url, access, budget, min(PATIENCE, wishes.timeout)) as client:
        meter = Meter(client, wishes.stuck_s, wishes.silent_s)
        say("health, version, models")
        release, served, checks = await _introduced(client)
        found = Verification(url=url, release=release, served=served, model=None, max_model_len=None, checks=())
        if not served:
            return replace(found, checks=tuple(checks))
        one = choose(served, wishes.model)
        length = one.max_model_len or wishes.max_model_len
        workload = _workload(wishes, length)
        found = replace(found, model=one.name, max_model_len=length, workload=workload, chat=wishes.chat)
        notes = _notes(workload, length)
        if await meter.read() is None:
            meter.absent = True
            notes.append(f"{meter.problem}: a request that is never scheduled shows by its time limit alone")
        elif meter.samples[-1].running or meter.samples[-1].waiting:
            notes.append("others use the server: its figures hold their requests as well")
        run = _Run(client, meter, wishes, Ask(model=one.name, prompt="", output=1, chat=wishes.chat), say)
        found = await run.everything(found)
        return replace(
            found,
            checks=(*checks, *run.checks),
            requests_sent=client.budget.sent,
            targets=wishes.targets,
            notes=(*notes, *run.notes),
        )


async def _introduced(client: Client) -> tuple[Release | None, tuple[Served, ...], list[Check]]:
    """What the server says of itself; nothing more is asked of one that takes connections and says nothing."""
    try:
        healthy = await health(client)
    except Failed as error:
        why = "The server takes connections and does not answer."
        return None, (), [Check("health", Held.FAILS, str(error), why, CURES[error.kind])]
    release, said = await version(client)
    served, listed = await models(client)
    return release, served, [healthy, said, listed]


async def _alive(client: Client) -> Check | None:
    """What ``/health`` says where it says nothing good any more."""
    try:
        check = await health(client)
    except (ServerError, Failed) as error:
        return Check("health afterwards", Held.FAILS, str(error).partition("\n")[0], "", CURES[Failure.UNREACHABLE])
    return replace(check, name="health afterwards") if check.held is Held.FAILS else None


class _Run:
    """The parts in order, as long as the server answers."""

    def __init__(self, client: Client, meter: Meter, wishes: Wishes, ask: Ask, say: Callable[[str], None]) -> None:
        self._client, self._meter, self._wishes, self._ask, self._say = client, meter, wishes, ask, say
        self.checks: list[Check] = []
        self.notes: list[str] = []

    async def everything(self, found: Verification) -> Verification:
        """``found`` with what the requests brought; ``checks`` grow meanwhile."""
        client, wishes = self._client, self._wishes
        self._say("small requests")
        prompts = await prompts_for(client, self._ask.model, wishes.seed)
        self.checks.append(await wrong_model(client, found.served, wishes.timeout, chat=wishes.chat))
        way = await small_requests(client, self._meter, self._ask, prompts, wishes.timeout)
        self._ask, prompts = way.ask, way.prompts
        self.checks += way.checks
        if any(check.held is Held.FAILS for check in way.checks):
            return found
        if not way.completions:
            self.notes.append("no completions here: exact lengths and the KV cache were not tried")
            return await self._loaded(found, Pool(None, why="there are no completions"), prompts)
        if wishes.boundary:
            found = await self._boundary(found, prompts)
            if self.checks[-1].held is Held.FAILS and (again := await _alive(client)) is not None:
                self.checks.append(again)
                return found
        self._say("KV cache")
        pool = await measure_pool(client, self._meter, self._ask, prompts, found.max_model_len, wishes.timeout)
        self.checks.append(pool_check(pool, found.max_model_len))
        return await self._loaded(replace(found, pool=pool), pool, prompts)

    async def _boundary(self, found: Verification, prompts: Prompts) -> Verification:
        length = found.max_model_len
        if length is None:
            unknown = "max_model_len is not known"
            self.checks.append(Check("boundary", Held.UNKNOWN, unknown, "", "Give --max-model-len."))
            return found
        seconds = self._wishes.timeout
        tried = await boundary(self._client, self._meter, self._ask, prompts, length, seconds, self._say)
        self.checks += tried.checks
        return replace(found, boundary=tried)

    async def _loaded(self, found: Verification, pool: Pool, prompts: Prompts) -> Verification:
        workload = found.workload
        if not self._wishes.ramp or workload is None:
            return found
        load = Load(self._client, self._meter, self._ask, prompts, self._wishes.timeout)
        if self._ask.chat:
            _, within = await chat_text(self._client, self._ask.model, prompts, 1)
            load.chat_overhead = max((within or 1) - 1, 0)
        climbed = await self._ramp(load, workload, pool)
        self.checks.append(_ramp_check(climbed, asked=self._wishes.levels is not None or workload.timed))
        if any(step.client_busy > _BUSY for step in climbed.steps):
            self.notes.append("kvroom was busy for most of a step: the server may do better than its figures")
        return replace(found, ramp=climbed)

    async def _ramp(self, load: Load, workload: Workload, pool: Pool) -> Ramp:
        wishes, budget = self._wishes, self._client.budget
        if workload.timed and wishes.levels is None:
            return await replay(load, workload, budget, pool, wishes.targets, self._say)
        levels = wishes.levels or levels_to(None)
        return await ramp(load, workload, levels, wishes.requests, budget, pool, wishes.targets, self._say)


def _workload(wishes: Wishes, max_model_len: int | None) -> Workload:
    if wishes.workload is not None:
        return wishes.workload.within(max_model_len)
    length = max_model_len or 4 * _INPUT
    return fixed(max(min(_INPUT, length // 2), 1), max(min(_OUTPUT, length // 4), 1))


def _notes(workload: Workload, max_model_len: int | None) -> list[str]:
    if not workload.left_out:
        return []
    longer = f"{workload.left_out:,} requests of the trace are longer than max_model_len {max_model_len:,}"
    return [f"{longer} and were left out"]


def _ramp_check(climbed: Ramp, *, asked: bool) -> Check:
    """Whether the load is served: the one asked for; else that one request alone is, within the targets."""
    limit = climbed.limit
    best = f"{climbed.best.concurrency} at once" if climbed.best and climbed.best.concurrency else ""
    broken = limit.cause in {Cause.GONE, Cause.STUCK, Cause.FAILURES}
    if limit.cause is Cause.BUDGET and (asked or climbed.best is None):
        return Check("load", Held.UNKNOWN, limit.evidence, "", "Raise --max-requests or --max-seconds.")
    if broken or climbed.best is None or (asked and limit.of_server):
        at = f"at {limit.concurrency} at once: " if limit.concurrency else ""
        why = f"Served in full were {best}." if best else ""
        return Check("load", Held.FAILS, f"{at}{limit.evidence}", why, _first_change(limit))
    rate = climbed.best.output_rate
    return Check("load", Held.HOLDS, f"{best or 'the trace'} served, {rate:,.1f} output tokens/s")


def _first_change(limit: Limit) -> str:
    if not limit.changes:
        return ""
    change = limit.changes[0]
    return f"{' '.join(change.flags)}: {change.why}" if change.flags else change.why
