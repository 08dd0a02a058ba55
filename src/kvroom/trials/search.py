"""The procedure: start conservatively, change one thing, measure, keep it or put it back, stop.

A generator that knows nothing of processes and files: it yields launches to try and is sent what came of them.
The same answers lead to the same questions, so a run that was interrupted is repeated from its stored trials.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from kvroom.remedies.limits import round_length
from kvroom.trials.changes import Changes
from kvroom.trials.figures import Load
from kvroom.trials.goal import Limit, ladder
from kvroom.trials.standing import Standing
from kvroom.trials.trial import Proposal, State, Trial
from kvroom.trials.ways import BATCHED, LENGTH, SEQS, Terms, ways_out

Asking = Generator[tuple[Proposal, ...], list[Trial], None]
Answering = Generator[tuple[Proposal, ...], list[Trial], Trial | None]
START_LENGTH, START_SEQS, START_BATCHED = 4096, 8, 2048
_MOST_BATCHED = 16384
_CURES, _WAYS = 6, 60
"""Ways out of one failed start that are launched, and that are asked of the ledger."""
_FEWEST, _LEAST_BATCHED = 1, 256


class Spent(Exception):
    """No launch is left."""


class Search(Standing):
    """One run of the procedure."""

    def __init__(self, terms: Terms, limits: Sequence[Limit], load: Load, *, most: int = 16, width: int = 1) -> None:
        super().__init__(terms, limits)
        self.load = load
        self._most = most
        self._width = width

    def run(self) -> Asking:
        """The launches to try, one batch after the other; ends when nothing is left to gain, or no launch."""
        try:
            yield from self._begin()
            if self.kept is None:
                return
            yield from self._lengthen()
            yield from self._relieve()
            yield from self._more_sequences()
            yield from self._more_batched_tokens()
            yield from self._more_memory()
        except Spent:
            return

    # The stages, in their order.

    def _begin(self) -> Asking:
        """The conservative start, or what cures it."""
        terms, changes = self.terms, dict[str, int | float | str | bool | None]()
        if terms.goal.length is not None and LENGTH not in terms.pinned:
            given = terms.args.max_model_len or START_LENGTH
            changes[LENGTH] = min(START_LENGTH, terms.goal.length, given if given > 0 else START_LENGTH)
        if terms.args.max_num_seqs is None and SEQS not in terms.pinned:
            changes[SEQS] = START_SEQS
        if terms.args.max_num_batched_tokens is None and BATCHED not in terms.pinned:
            changes[BATCHED] = START_BATCHED
        first = yield from self._one(Proposal(changes=changes, step=changes, why="a conservative start"))
        if first is not None and first.state is not State.STARTED:
            first = yield from self._cured(first, shorten=True)
        if first is not None and first.state is State.STARTED:
            self.keep(first)

    def _lengthen(self) -> Asking:
        """4K, 8K, ... up to the goal's length; what does not start is made room for."""
        goal = self.terms.goal.length
        if goal is None or LENGTH in self.terms.pinned:
            return
        rungs = [length for length in ladder(goal) if length > self.length()]
        for chunk in _chunks(rungs, self._width):
            steps = [({LENGTH: length}, f"the goal is {goal:,} tokens") for length in chunk]
            for trial in (yield from self._several(steps)):
                found: Trial | None = trial
                if trial.state is not State.STARTED:
                    found = yield from self._cured(trial, shorten=False)
                if found is None:
                    yield from self._between(trial)
                    return
                if not self.judge(found):
                    return

    def _between(self, failed: Trial) -> Asking:
        """The longest length that the ledger or the diagnosis of ``failed`` leaves, so that the nearest is known."""
        told = [remedy[LENGTH] for remedy in failed.remedies if isinstance(remedy.get(LENGTH), int)]
        longest = min([length for length in (*told, failed.forecast.longest) if length and length > 0], default=0)
        if (length := round_length(longest)) > self.length():
            trial = yield from self._step({LENGTH: length}, f"{longest:,} tokens are the most that fit")
            if trial is not None:
                self.judge(trial)

    def _relieve(self) -> Asking:
        """Less at once, or less memory, while a limit is broken."""
        for name, least in ((SEQS, self.terms.goal.requests or _FEWEST), (BATCHED, _LEAST_BATCHED)):
            while (now := self.value(name)) and now // 2 >= least and self.breaks("ttft", "tpot"):
                if not (yield from self._gains({name: now // 2}, "a limit on latency is broken")):
                    break
        while self.breaks("peak") and self.kept is not None:
            step = self.terms.platform.less_memory(self.terms.args, self.kept.changes)
            if step is None or not (yield from self._gains(step, "the limit on memory is broken")):
                break

    def _more_sequences(self) -> Asking:
        """Four times as many sequences while it pays, then the halves on both sides of what paid."""
        most = max(self.terms.goal.requests or 0, self.load.concurrency)
        first = self.value(SEQS)
        failed = yield from self._climb(SEQS, list(_rungs(first, most, 4)), "more requests run at once")
        now = self.value(SEQS)
        if now is None or self.terms.goal.requests == now:
            return
        if (
            failed is not None
            and now * 2 < failed
            and (yield from self._gains({SEQS: now * 2}, f"between {now} and {failed}"))
        ):
            return
        if failed is not None:
            yield from self._down(SEQS, max(self.terms.goal.requests or 0, _FEWEST), "fewer run at once, each faster")

    def _more_batched_tokens(self) -> Asking:
        """Twice the batch while it pays, else half of it while that pays."""
        before = self.value(BATCHED)
        yield from self._climb(BATCHED, list(_rungs(before, _MOST_BATCHED, 2)), "longer steps")
        if before and self.value(BATCHED) == before:
            yield from self._down(BATCHED, max(_LEAST_BATCHED, self.value(SEQS) or 0), "shorter steps")

    def _more_memory(self) -> Asking:
        """More for the cache in small steps, where the pool holds requests back or is too small for the goal."""
        while self.wants_pool():
            assert self.kept is not None
            steps = [*self.terms.platform.memory_steps(self.terms.args, self.kept.changes, self.kept.forecast)]
            if not steps or not (yield from self._gains(steps[0], "the pool is what holds requests back")):
                break
        while self.wants_pool():
            assert self.kept is not None
            trades = [*self.terms.platform.trades(self.terms.args, self.kept.changes)]
            if not trades or not (yield from self._gains(trades[0], "the pool is still too small")):
                break

    # Steps.

    def _climb(
        self, name: str, rungs: Sequence[int], why: str
    ) -> Generator[tuple[Proposal, ...], list[Trial], int | None]:
        """Go along ``rungs`` while they are kept; the first after the last that was, None where all were.

        Where a rung makes no difference the next one is tried as well: two small steps may be one that shows.
        """
        failed: int | None = None
        for chunk in _chunks(rungs, self._width):
            trials = yield from self._several([({name: rung}, why) for rung in chunk])
            for rung, trial in zip(chunk, trials, strict=False):
                if self.judge(trial):
                    failed = None
                elif failed is not None or not self.makes_no_difference(trial):
                    return failed or rung
                else:
                    failed = rung
        return failed

    def _down(self, name: str, least: int, why: str) -> Asking:
        """Half of ``name`` while it pays; where that was tried before, nothing is asked anew."""
        yield from self._climb(name, list(_halves(self.value(name), least)), why)

    def _gains(self, step: Changes, why: str) -> Generator[tuple[Proposal, ...], list[Trial], bool]:
        """Try one step; whether it is kept."""
        trial = yield from self._step(step, why)
        return trial is not None and self.judge(trial)

    def _cured(self, failed: Trial, *, shorten: bool) -> Answering:
        """The first trial after ``failed`` that starts, each following what the one before it teaches."""
        now, launched, asked = failed, 0, 0
        ways = ways_out(now, self.terms, shorten=shorten)
        while launched < _CURES and asked < _WAYS and (way := next(ways, None)) is not None:
            step, why = way
            changes = {**now.changes, **step}
            if changes == dict(now.changes):
                continue
            asked += 1
            trial = yield from self._one(Proposal(changes=changes, step=step, why=why))
            if trial is None or trial.state is State.STARTED:
                return trial
            launched += trial.state is State.FAILED
            if _is_nearer(trial, now):
                now = trial
                ways = ways_out(now, self.terms, shorten=shorten)
        return None

    def _step(self, step: Changes, why: str) -> Answering:
        found = yield from self._several([(step, why)])
        return found[0] if found else None

    def _several(
        self, steps: Sequence[tuple[Changes, str]]
    ) -> Generator[tuple[Proposal, ...], list[Trial], list[Trial]]:
        """The trials of steps that each build on what is kept; none for those that may not be taken."""
        base = dict(self.kept.changes) if self.kept else {}
        wanted = [Proposal(changes={**base, **step}, step=step, why=why) for step, why in steps if self.terms.may(step)]
        return (yield from self._ask(wanted))

    def _one(self, proposal: Proposal) -> Answering:
        found = yield from self._ask([proposal])
        return found[0] if found else None

    def _ask(self, proposals: Sequence[Proposal]) -> Generator[tuple[Proposal, ...], list[Trial], list[Trial]]:
        """The trials of ``proposals``; what was tried before is not tried again. Raises Spent."""
        new = [each for each in proposals if each.digest not in self.known]
        room = self._most - self.launches
        if new and room <= 0:
            raise Spent
        if new:
            for trial in (yield tuple(new[:room])):
                self.known[trial.proposal.digest] = trial
        return [self.known[each.digest] for each in proposals if each.digest in self.known]


def _rungs(now: int | None, most: int, factor: int) -> Iterator[int]:
    """Values above ``now`` up to ``most``, each ``factor`` times the one before; none where ``now`` is unknown."""
    while now and now < most:
        now = min(now * factor, most)
        yield now


def _halves(now: int | None, least: int) -> Iterator[int]:
    """Values below ``now`` down to ``least``, each half of the one before; none where ``now`` is unknown."""
    while now and now // 2 >= least:
        now //= 2
        yield now


def _chunks(rungs: Sequence[int], width: int) -> Iterator[Sequence[int]]:
    for at in range(0, len(rungs), width):
        yield rungs[at : at + width]


def _is_nearer(trial: Trial, before: Trial) -> bool:
    """Whether a start that fails is nearer to one that does not: it got further, or has more for its cache."""
    now, then = trial.forecast, before.forecast
    if now.stage != then.stage or trial.finding != before.finding:
        return True
    if now.available_bytes is None or then.available_bytes is None:
        return False
    return now.available_bytes > then.available_bytes or (now.needed_bytes or 0) < (then.needed_bytes or 0)
