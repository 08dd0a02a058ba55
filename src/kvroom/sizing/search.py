"""The search: for every card the fewest GPUs that hold the need, for each way to store weights and cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from kvroom.devices.device import Device
from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Status
from kvroom.sizing.clock import clock
from kvroom.sizing.judge import Judge, room_of
from kvroom.sizing.layouts import Layout, counts, layouts
from kvroom.sizing.need import Need
from kvroom.sizing.option import Option, Speed
from kvroom.sizing.prices import Prices
from kvroom.sizing.problem import Level, Problem, asked_as

Clock = Callable[[Prediction, Need], Speed | None]
"""How fast a candidate is under the need; None where that is not known."""
UNTIMED = "how fast this card is is not known"
_SURE = 0.9
"""Of the expected weights and cache, the share that is taken for certain."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search brought."""

    options: tuple[Option, ...] = ()
    """Those that meet the need: for each card and level the fewest GPUs."""
    misses: tuple[Option, ...] = ()
    """For each card the candidate that came nearest with fewer GPUs, or at all."""
    judged: int = 0
    """Candidates that went through the ledger."""
    ruled_out: int = 0
    """Candidates whose weights and cache are larger than all their memory together."""


def search(problem: Problem, devices: Iterable[Device], clock: Clock = clock) -> Found:
    """Everything that ``devices`` offer for ``problem``, unsorted."""
    searcher = Searcher(problem, clock)
    return merged(searcher.device(device) for device in devices)


def merged(parts: Iterable[Found]) -> Found:
    """Several searches as one."""
    parts = list(parts)
    return Found(
        tuple(option for part in parts for option in part.options),
        tuple(option for part in parts for option in part.misses),
        sum(part.judged for part in parts),
        sum(part.ruled_out for part in parts),
    )


@dataclass
class Searcher:
    """The search of one problem, with what cards share kept between them."""

    problem: Problem
    clock: Clock = clock
    _whole: dict[tuple[object, ...], int] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        base = self.problem.base
        self._judge = Judge(base.release, base.without, base.draft)

    def device(self, device: Device) -> Found:
        """The options and the nearest miss of one card."""
        judged, ruled_out = self._judge.judged, 0
        options: list[Option] = []
        misses: list[Option] = []
        fewest = self.problem.most + 1
        for level in self.problem.levels:
            for gpus in counts(self.problem.per_node, min(self.problem.most, fewest - 1)):
                ways = layouts(level.shape, gpus, self.problem.per_node)
                if self._too_small(level, device, gpus):
                    ruled_out += len(ways)
                    continue
                good: list[Option] = []
                for staged in (False, True):  # stages wait for each other: only where nothing else holds it
                    tried = [way for way in ways if (way.pp > 1) == staged and not good]
                    found = [self.candidate(level, way, device) for way in tried]
                    good += [option for option in found if option.meets]
                    misses += [option for option in found if not option.meets]
                if good:
                    options.append(min(good, key=_preference))
                    fewest = gpus
                    break
        if not options and not misses:
            misses = self._largest(device)
        nearest = [min(misses, key=lambda option: nearness(option, self.problem))] if misses else []
        return Found(tuple(options), tuple(nearest), self._judge.judged - judged, ruled_out)

    def _largest(self, device: Device) -> list[Option]:
        """The candidates with the most GPUs that give up most: what comes nearest where size alone rules all out."""
        level, gpus = self.problem.levels[-1], counts(self.problem.per_node, self.problem.most)[-1]
        return [self.candidate(level, way, device) for way in layouts(level.shape, gpus, self.problem.per_node)]

    def candidate(self, level: Level, way: Layout, device: Device) -> Option:
        """One candidate through the ledger."""
        problem = self.problem
        found = self._judge(level.shape, problem.args(level, way), device, way.gpus)
        each = problem.each(way)
        room = room_of(found, problem.need.held, each)
        status = Status.FAILS
        if found.verdict.status is not Status.FAILS and room.expected >= each:
            fits = found.verdict.status is Status.FITS and room.low >= each
            status = Status.FITS if fits else Status.TIGHT
        speed = self.clock(found, problem.need) if status is not Status.FAILS else None
        message = None if found.verdict.status is Status.FITS else found.verdict.message or found.verdict.stage
        if speed is None and status is Status.FITS and problem.need.timed:
            status, message = Status.TIGHT, UNTIMED
        return Option(
            device.id,
            self._name(device),
            device.name,
            device.total_bytes,
            way,
            level.weights,
            level.kv,
            level.rank,
            problem.tokens(level, way),
            status,
            room.low * way.dp,
            room.expected * way.dp,
            room.lacks_bytes,
            room.spare_bytes,
            message,
            found.pool.longest_context if found.pool is not None else 0,
            speed,
        )

    def _name(self, device: Device) -> str:
        if device.id not in self._names:
            self._names[device.id] = asked_as(device)
        return self._names[device.id]

    def _too_small(self, level: Level, device: Device, gpus: int) -> bool:
        """Whether weights and cache are larger than the budget of ``gpus`` cards, however they are spread.

        Spreading a model repeats parts of it but never makes the whole smaller than it is on one card.
        """
        key = (level.rank, device.vendor, device.compute_capability)
        whole = self._whole.get(key)
        if whole is None:
            need = self.problem.need
            found = self._judge(level.shape, self.problem.args(level, Layout()), device, 1)
            held = found.ledger.weights.expected if found.ledger is not None else 0
            if found.layout is not None:
                held += found.layout.request_blocks(need.held) * need.concurrency * found.layout.bytes_per_block
            whole = self._whole[key] = int(held * _SURE)
        return whole > gpus * device.total_high


def nearness(option: Option, problem: Problem) -> tuple[float, ...]:
    """How far an option that misses is from the need: sort by it, nearest first."""
    if option.status is Status.FITS and option.speed is not None:
        need = problem.need
        late = max(
            option.speed.tpot / need.tpot if need.tpot else 0.0, option.speed.ttft / need.ttft if need.ttft else 0.0
        )
        return (0, late, option.gpus)
    if option.status is Status.TIGHT:
        return (1, 0.0, option.gpus)
    missing = option.lacks_bytes * option.gpus if option.lacks_bytes else 1 << 60
    return (2, float(missing), option.gpus)


def _preference(option: Option) -> tuple[float, ...]:
    """Among ways to spread a model over equal cards: the fastest where that is known, else the one with most room."""
    fast = option.speed.tpot if option.speed is not None else 0.0
    return (fast, -option.room_low, option.layout.pp, option.layout.dp)


def priced(found: Found, prices: Prices) -> Found:
    """``found`` with what each option costs an hour, where that was given."""
    options = tuple(replace(option, price=prices.of(option.device_id, option.gpus)) for option in found.options)
    misses = tuple(replace(option, price=prices.of(option.device_id, option.gpus)) for option in found.misses)
    return replace(found, options=options, misses=misses)


def pareto(options: Iterable[Option]) -> tuple[Option, ...]:
    """Options that no other beats, cheapest first.

    One beats another that costs no less, gives up no less of the checkpoint and is not faster, and is worse in one of
    them. Cards without a price compare with their own kind only: memory says nothing about money.
    """
    ordered = sorted(options, key=lambda option: (*option.cost, option.rank))
    return tuple(option for option in ordered if not any(_beats(other, option) for other in ordered))


def _beats(one: Option, other: Option) -> bool:
    if one.price is not None and other.price is not None:
        costs = (one.price, other.price)
    elif one.device_id == other.device_id:
        costs = (float(one.gpus), float(other.gpus))
    else:
        return False
    pairs = [costs, (float(one.rank), float(other.rank))]
    if one.speed is not None and other.speed is not None:
        pairs.append((one.speed.tpot, other.speed.tpot))
    return all(mine <= its for mine, its in pairs) and any(mine < its for mine, its in pairs)
