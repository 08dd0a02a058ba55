"""The store of trials: any database that SQLAlchemy reaches, by default an SQLite file in the user's data folder.

Every write is one short transaction. A run belongs to one kvroom at a time: who works on it is written in its row,
and another one is refused until that process has ended.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kvroom.errors import StoreError, UsageError, short
from kvroom.trials.database import absent, default_url, engine_of, make_folder, tables, told
from kvroom.trials.owner import damaged, me, now, owner_of, refuse_if_taken
from kvroom.trials.supervise import Process
from kvroom.trials.trial import State, Trial, trial_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ENDING = frozenset({"met", "command", "why", "margin", "launches", "started", "skipped", "stopped"})
"""What every ending has; its reports rely on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of ``tune``: what was asked, and how it ended."""

    id: str
    key: str
    """Equal for the same question, so that it is taken up again."""
    asked: Mapping[str, Any]
    """Command, goal, limits, load and the rest, as JSON."""
    created: str
    """UTC, ISO 8601."""
    ended: str | None = None
    ending: Mapping[str, Any] | None = None


class Store:
    """The runs and trials at ``url``. Raises StoreError for whatever the database says, never a traceback."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url or default_url()
        self.engine = engine_of(self.url)
        self._ready = False

    def take(self, key: str, asked: Mapping[str, Any], *, fresh: bool = False) -> tuple[Run, bool]:
        """The run of ``key`` that has not ended, now this process's own, else a new one; whether it was there.

        Raises StoreError where another process works on it.
        """
        from sqlalchemy import select

        with self._begin() as (connection, runs, _):
            found = connection.execute(select(runs).where(runs.c.open == key)).mappings().first()
            row = None if found is None else dict(found)
            if row is not None:
                refuse_if_taken(row)
                mine = {"ended": now(), "open": None} if fresh else {"owner": me(), "beat": now()}
                same = (runs.c.id == row["id"], runs.c.owner == row["owner"], runs.c.beat == row["beat"])
                if connection.execute(runs.update().where(*same).values(**mine)).rowcount != 1:
                    raise StoreError("Another kvroom took up this run at the same moment.", "Wait for it.")
                if not fresh:
                    return _run(row), True
            run = Run(id=uuid4().hex[:12], key=key, asked=asked, created=now())
            values = {"id": run.id, "key": key, "open": key, "asked": json.dumps(asked), "created": run.created}
            connection.execute(runs.insert().values(**values, owner=me(), beat=now()))
            return run, False

    def others(self, run: Run) -> int:
        """How many other runs a kvroom on this machine works on now."""
        from sqlalchemy import select

        with self._begin() as (connection, runs, _):
            rows = connection.execute(select(runs).where(runs.c.ended.is_(None), runs.c.id != run.id)).mappings()
            owners = [owner_of(dict(row)) for row in rows if row["owner"]]
        here = [owner for owner in owners if owner["host"] == socket.gethostname()]
        return sum(Process(owner["pid"], owner["started"]).alive() for owner in here if owner["pid"] != os.getpid())

    def begin(self, run: Run, number: int, proposal: Mapping[str, Any], folder: Path) -> None:
        """A trial is about to be launched; a number that was begun before begins again."""
        self._write(run, number, str(State.RUNNING), {"proposal": proposal, "folder": str(folder)})

    def note_processes(self, run: Run, number: int, processes: tuple[Process, ...], name: str = "") -> None:
        """The processes of the trial that runs, for whoever has to end them."""
        with self._begin() as (connection, _, trials):
            data = {"processes": [asdict(each) for each in processes], "container": name, "host": socket.gethostname()}
            connection.execute(
                trials.update()
                .where(trials.c.run == run.id, trials.c.number == number)
                .values(processes=json.dumps(data))
            )

    def finish(self, run: Run, trial: Trial) -> None:
        """A trial with what came of it."""
        self._write(run, trial.number, str(trial.state), trial.data())

    def trials(self, run: Run | str) -> list[Trial]:
        """The finished trials of a run, in their order."""
        return [_trial(row["data"]) for row in self._rows(run) if row["state"] != State.RUNNING]

    def unfinished(self, run: Run) -> list[Mapping[str, Any]]:
        """What is known of trials that were begun and not finished: ``number``, ``proposal``, ``processes``, ..."""
        return [
            {"number": row["number"], **_object(row["data"]), **_object(row["processes"] or "{}")}
            for row in self._rows(run)
            if row["state"] == State.RUNNING
        ]

    def end(self, run: Run, ending: Mapping[str, Any]) -> None:
        """The run is over, and this process done with it."""
        with self._begin() as (connection, runs, _):
            values = {"ended": now(), "ending": json.dumps(ending), "owner": "", "open": None}
            connection.execute(runs.update().where(runs.c.id == run.id).values(**values))

    def leave(self, run: Run) -> None:
        """Give the run up, so that it may be taken up again."""
        with self._begin() as (connection, runs, _):
            connection.execute(runs.update().where(runs.c.id == run.id).values(owner=""))

    def runs(self) -> list[Run]:
        """Every run, the newest first."""
        from sqlalchemy import select

        if not self._there():
            return []
        with self._begin() as (connection, runs, _):
            rows = connection.execute(select(runs).order_by(runs.c.created.desc())).mappings().all()
        return [_run(dict(row)) for row in rows]

    def run(self, start: str) -> Run:
        """The run whose id begins with ``start``, the newest for an empty one; UsageError where there is none."""
        every = self.runs()
        found = [run for run in every if run.id.startswith(start)]
        if not found:
            raise UsageError(
                f"There is no run '{short(start, 40)}'." if start else "No run was made yet.",
                "kvroom trials lists them.",
            )
        if start and len(found) > 1:
            raise UsageError(f"Several runs begin with '{short(start, 40)}'.", "kvroom trials lists them.")
        return found[0]

    def _there(self) -> bool:
        """Whether anything was kept yet: looking makes no file and no table."""
        from sqlalchemy import inspect
        from sqlalchemy.exc import SQLAlchemyError

        if absent(self.url):
            return False
        make_folder(self.url)  # there already, or cannot be
        try:
            return inspect(self.engine).has_table(tables()[0].name)
        except SQLAlchemyError as error:
            raise told(self.url, error) from None

    def _write(self, run: Run, number: int, state: str, data: Mapping[str, Any]) -> None:
        with self._begin() as (connection, runs, trials):
            values = {"state": state, "data": json.dumps(data)}
            changed = connection.execute(
                trials.update().where(trials.c.run == run.id, trials.c.number == number).values(**values)
            )
            if not changed.rowcount:
                connection.execute(trials.insert().values(run=run.id, number=number, **values))
            connection.execute(runs.update().where(runs.c.id == run.id).values(beat=now()))

    def _rows(self, run: Run | str) -> list[Mapping[str, Any]]:
        from sqlalchemy import select

        with self._begin() as (connection, _, trials):
            query = select(trials).where(trials.c.run == (run if isinstance(run, str) else run.id))
            return [dict(row) for row in connection.execute(query.order_by(trials.c.number)).mappings()]

    def _make_tables(self, metadata: Any) -> None:
        """The tables, whoever makes them first: another process may between looking and making."""
        from sqlalchemy.exc import SQLAlchemyError

        for last in (False, False, True):
            try:
                metadata.create_all(self.engine)
                return
            except SQLAlchemyError:
                if last:
                    raise

    @contextmanager
    def _begin(self) -> Iterator[tuple[Connection, Any, Any]]:
        """A transaction, the table of runs and that of trials; what the database says becomes a StoreError."""
        from sqlalchemy.exc import SQLAlchemyError

        runs, trials, metadata = tables()
        try:
            if not self._ready:
                make_folder(self.url)
                self._make_tables(metadata)
                self._ready = True
            with self.engine.begin() as connection:
                yield connection, runs, trials
        except SQLAlchemyError as error:
            raise told(self.url, error) from None


def _object(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError):
        raise StoreError("A trial in the store is damaged.", "Name another --store.") from None


def _run(row: Mapping[str, Any]) -> Run:
    try:
        asked, ending = json.loads(row["asked"]), json.loads(row["ending"] or "null")
    except (TypeError, ValueError):
        raise damaged(row) from None
    whole = isinstance(asked, dict) and (ending is None or (isinstance(ending, dict) and ending.keys() >= _ENDING))
    if not whole or not isinstance(row["created"], str):
        raise damaged(row)
    return Run(id=row["id"], key=row["key"], asked=asked, created=row["created"], ended=row["ended"], ending=ending)


def _trial(text: str) -> Trial:
    try:
        return trial_of(json.loads(text))
    except (KeyError, TypeError, ValueError):
        raise StoreError("A trial in the store is damaged.", "Start the run anew with --fresh.") from None
