"""A run of ``tune``: asks the search, predicts, launches, diagnoses, stores, and takes up where it was interrupted."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError, StoreError, short
from kvroom.redaction import clean_command
from kvroom.trials.ending import Ending, ending_of
from kvroom.trials.foresee import Foresight
from kvroom.trials.launch import Launcher, Order
from kvroom.trials.launchers.docker import remove
from kvroom.trials.noise import noise_of
from kvroom.trials.orders import order_of
from kvroom.trials.progress import Progress
from kvroom.trials.question import Question
from kvroom.trials.results import diagnosed, result
from kvroom.trials.search import Search
from kvroom.trials.standing import Judgement
from kvroom.trials.store import Run, Store
from kvroom.trials.supervise import Process, end_orphans
from kvroom.trials.trial import Forecast, Proposal, State, Trial, trial_of


class Tuner:
    """Carries out one run."""

    def __init__(
        self,
        question: Question,
        store: Store,
        launcher: Launcher,
        foresight: Foresight,
        folder: Path,
        progress: Progress,
    ) -> None:
        self._question = question
        self._store = store
        self._launcher = launcher
        self._foresight = foresight
        self._folder = folder
        self._progress = progress
        self._known: dict[str, Trial] = {}
        self._launches = 0
        self._next = 1
        self._proved = self._warned = False
        self.run: Run | None = None

    def tune(self, *, fresh: bool = False) -> tuple[Ending, list[Trial]]:
        """The ending and every trial; a run that was interrupted goes on where it was."""
        self.run, resumed = self._store.take(self._question.key, self._question.asked(), fresh=fresh)
        try:
            if self._store.others(self.run):
                self._progress.note("another kvroom tunes on this machine: the figures of both are disturbed")
            if resumed:
                self._take_up(self.run)
            question = self._question
            search = Search(
                question.terms, question.limits, question.load, most=question.most, width=self._launcher.width
            )
            self._drive(search)
            best = search.kept
            line = question.command.line(best.changes, question.release) if best else []
            ending = ending_of(search, line, question.release, most=question.most)
            self._store.end(self.run, {**ending.data(), "command": clean_command(ending.command)})
        except BaseException:
            self._leave()
            raise
        return ending, [self._with_judgement(trial, search.judged) for trial in search.trials]

    def _leave(self) -> None:
        try:
            if self.run is not None:
                self._store.leave(self.run)
        except KvroomError:  # it is about to be told
            pass

    def _drive(self, search: Search) -> None:
        """Answer what the search asks, and store its judgements as they come."""
        asking, judged = search.run(), set[int]()
        try:
            proposals = next(asking)
            while True:
                trials = self._trials(proposals)
                proposals = asking.send(trials)
                judged = self._judged(search, judged)
        except StopIteration:
            self._judged(search, judged)

    def _judged(self, search: Search, told: set[int]) -> set[int]:
        for number in sorted(search.judged.keys() - told):
            judgement = search.judged[number]
            trial = next(trial for trial in self._known.values() if trial.number == number)
            now = self._with_judgement(trial, search.judged)
            if now != trial and self.run is not None:
                self._known[trial.proposal.digest] = now
                self._store.finish(self.run, now)
            self._progress.judged(number, judgement)
        return set(search.judged)

    @staticmethod
    def _with_judgement(trial: Trial, judged: Mapping[int, Judgement]) -> Trial:
        judgement = judged.get(trial.number)
        if judgement is None:
            return trial
        return replace(trial, kept=judgement.kept, reason=trial.reason or judgement.reason)

    # Taking up.

    def _take_up(self, run: Run) -> None:
        """Know what was finished, end what was left running, and take over results that were not stored."""
        for row in self._store.unfinished(run):
            self._end_left(row)
            saved = Path(row["folder"]) / "result.json"
            try:
                self._store.finish(run, trial_of(json.loads(saved.read_text("utf-8"))))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # it is launched again
        for trial in self._store.trials(run):
            self._know(trial)
            if trial.state is not State.SKIPPED:
                self._teach(trial)
        rows = self._store.unfinished(run)
        self._next = 1 + max([trial.number for trial in self._known.values()], default=0)
        self._progress.note(
            f"run {run.id} is taken up after {len(self._known)} finished trials"
            + (f"; {len(rows)} that were interrupted are launched again" if rows else "")
        )

    def _end_left(self, row: Mapping[str, Any]) -> None:
        if row.get("host") != socket.gethostname():
            return
        left = end_orphans([Process(**each) for each in row.get("processes", ())])
        if row.get("container") and self._question.command.container:
            remove(self._question.command.container, row["container"])
        if left:
            self._progress.note(f"{left} processes of the interrupted trial {row['number']} were ended")

    def _teach(self, trial: Trial) -> None:
        """Let a finished trial's log teach the next predictions."""
        if trial.log and Path(trial.log).exists():
            diagnosis = diagnosed(self._question, Path(trial.log), trial.proposal)
            if diagnosis is not None:
                self._foresight.learn(*self._question.launch_of(trial.proposal), diagnosis)

    def _know(self, trial: Trial) -> None:
        self._known[trial.proposal.digest] = trial
        self._launches += trial.state is not State.SKIPPED
        self._proved = self._proved or (trial.figures is not None and self._proof(trial.proposal) is not None)

    # One batch of trials.

    def _trials(self, proposals: Sequence[Proposal]) -> list[Trial]:
        orders: list[tuple[Order, Proposal, Forecast]] = []
        for proposal in proposals:
            if proposal.digest not in self._known:
                self._prepare(proposal, orders)
        if orders:
            self._carry_out(orders)
        return [self._known[proposal.digest] for proposal in proposals]

    def _prepare(self, proposal: Proposal, orders: list[tuple[Order, Proposal, Forecast]]) -> None:
        """Predict; what cannot start is a skipped trial, the rest an order."""
        number, self._next = self._next, self._next + 1
        tokens, env = self._question.launch_of(proposal)
        forecast = self._foresight.forecast(tokens, env)
        assert self.run is not None
        if forecast.status == "fails" and not self._question.launch_all:
            reason = f"the ledger says that it stops at {forecast.stage}: {forecast.message}"
            trial = Trial(number=number, proposal=proposal, state=State.SKIPPED, forecast=forecast, reason=reason)
            self._store.finish(self.run, trial)
            self._know(trial)
            self._progress.came(trial)
            return
        folder = self._folder / self.run.id / f"trial-{number:03}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{short(str(folder))} cannot be made: {error.strerror}.", "KVROOM_RUNS names another."
            ) from None
        self._store.begin(self.run, number, asdict(proposal), folder)
        launches = self._launches + len(orders) + 1
        self._progress.proposed(number, proposal, forecast, launches, self._question.most)
        order = order_of(self._question, self.run.id, number, proposal, folder, self._proof(proposal))
        noise = noise_of(trial.throughputs for trial in self._known.values())
        orders.append((replace(order, noise=noise), proposal, forecast))

    def _proof(self, proposal: Proposal) -> int | None:
        """The goal's length, where this trial is the first to serve it."""
        goal = self._question.terms.goal.length
        length = self._question.terms.value(proposal.changes, "max_model_len")
        return goal if goal and length and length >= goal and not self._proved else None

    def _carry_out(self, orders: list[tuple[Order, Proposal, Forecast]]) -> None:
        begun = time.monotonic()
        dones = self._launcher.carry_out([order for order, _, _ in orders], self)
        seconds = time.monotonic() - begun
        for (order, proposal, forecast), done in zip(orders, dones, strict=True):
            if done.log is not None:
                order.log.write_bytes(done.log)
            diagnosis = diagnosed(self._question, order.log, proposal)
            if diagnosis is not None:
                self._foresight.learn(*self._question.launch_of(proposal), diagnosis)
                self._check_release(diagnosis.reading.version)
            trial = result(self._question, order, proposal, forecast, done, diagnosis)
            trial = replace(trial, seconds=seconds)
            _save(order.log.with_name("result.json"), trial)
            assert self.run is not None
            self._store.finish(self.run, trial)
            self._know(trial)
            self._progress.came(trial)

    def _check_release(self, printed: str | None) -> None:
        """Say where the server is of another release than the rules that are used."""
        said = str(self._question.release)
        if printed and not self._warned and not printed.startswith(said):
            self._warned = True
            self._progress.note(f"the server says vLLM {printed}, predictions are by {said}: give --vllm {printed}")

    # What a launch tells while it goes on.

    def stage(self, number: int, name: str) -> None:
        """Passed on."""
        self._progress.stage(number, name)

    def running(self, number: int, processes: tuple[Process, ...], container: str) -> None:
        """Stored, so that a later kvroom can end them."""
        if self.run is not None:
            self._store.note_processes(self.run, number, processes, container)


def _save(path: Path, trial: Trial) -> None:
    """The trial beside its log, whole or not at all: it counts even where the store cannot be written."""
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_text(json.dumps(trial.data()), "utf-8")
        os.replace(temporary, path)  # noqa: PTH105 - as atomic, and says so
    except OSError:
        temporary.unlink(missing_ok=True)
