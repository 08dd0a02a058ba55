"""The store: one SQLite file with what was learned, safe when several processes write at once.

Every write is one short transaction, and a reader sees the file as it was before or after it. A file that is
damaged, foreign or of a newer kvroom is an error, and is never written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvroom.errors import StoreError, UsageError
from kvroom.files import reason
from kvroom.learned.measurement import Measurement, cleaned, measurement_of

if TYPE_CHECKING:
    import sqlite3

SCHEMA = 1
_APPLICATION = 0x6B76726D
"""``kvrm``, in the file's header: whose it is."""
_WAIT = 10.0
"""Seconds for which another process may hold the file."""
_CREATE = (
    "CREATE TABLE measurement (id TEXT PRIMARY KEY, gpu TEXT NOT NULL, vllm TEXT NOT NULL,"
    " learned TEXT NOT NULL, data TEXT NOT NULL)",
    "CREATE INDEX by_machine ON measurement (gpu, vllm)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {SCHEMA}",
)


def store_path() -> Path:
    """Where measurements are kept: ``KVROOM_LEARNED``, else ``learned.sqlite3`` in the user's data folder."""
    given = os.environ.get("KVROOM_LEARNED", "").strip()
    if given:
        return Path(given).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("kvroom", appauthor=False) / "learned.sqlite3"


@dataclass(frozen=True, slots=True)
class Store:
    """The measurements in one file, which need not exist."""

    path: Path

    def every(self, *, gpu: str | None = None, vllm: str | None = None) -> list[Measurement]:
        """All measurements, or those of one card or release, the newest first.

        Raises StoreError for a file that cannot be read as a store.
        """
        if not self._there():
            return []
        query = "SELECT data FROM measurement WHERE (? IS NULL OR gpu = ?) AND (? IS NULL OR vllm = ?)"
        with self._open("rw") as file:
            rows = file.execute(f"{query} ORDER BY learned DESC, id", (gpu, gpu, vllm, vllm)).fetchall()
        return [self._read(text) for (text,) in rows]

    def add(self, measurements: Iterable[Measurement]) -> int:
        """Keep ``measurements``, all or none; how many were not there yet. The file and its folder are made."""
        rows = [
            (each.id, each.gpu, str(each.release), each.learned, json.dumps(each.data(), sort_keys=True))
            for each in map(cleaned, measurements)
        ]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise self._error(f"its folder cannot be made: {reason(error)}") from None
        with self._writing("rwc") as file:
            before = file.execute("SELECT count(*) FROM measurement").fetchone()[0]
            file.executemany("INSERT OR REPLACE INTO measurement VALUES (?, ?, ?, ?, ?)", rows)
            return int(file.execute("SELECT count(*) FROM measurement").fetchone()[0] - before)

    def forget(self, ids: Collection[str]) -> int:
        """Drop the measurements whose ids begin with one of ``ids``; how many there were.

        Raises UsageError, and drops none, where one of them begins no id or several.
        """
        if not self._there():
            raise UsageError("Nothing was learned yet.", "`kvroom learned` lists what there is.")
        with self._writing("rw") as file:
            known = [row[0] for row in file.execute("SELECT id FROM measurement")]
            chosen = {self._one(start, known) for start in ids}
            file.executemany("DELETE FROM measurement WHERE id = ?", [(each,) for each in chosen])
        return len(chosen)

    def forget_all(self) -> int:
        """Drop every measurement; how many there were."""
        if not self._there():
            return 0
        with self._writing("rw") as file:
            return int(file.execute("DELETE FROM measurement").rowcount)

    def _there(self) -> bool:
        try:
            return self.path.stat().st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:
            raise self._error(f"it cannot be read: {reason(error)}") from None

    @staticmethod
    def _one(start: str, known: list[str]) -> str:
        found = [each for each in known if start and each.startswith(start.lower())]
        if len(found) != 1:
            what = "Nothing" if not found else "More than one thing"
            raise UsageError(f"{what} was learned under {start[:40]!r}.", "`kvroom learned` lists the ids.")
        return found[0]

    @contextmanager
    def _writing(self, mode: str) -> Iterator[sqlite3.Connection]:
        """The file within one transaction, which is undone by any error."""
        with self._open(mode) as file:
            file.execute("BEGIN IMMEDIATE")
            try:
                if self._whose(file) is None:
                    for statement in _CREATE:
                        file.execute(statement)
                yield file
            except BaseException:
                if file.in_transaction:
                    file.execute("ROLLBACK")
                raise
            file.execute("COMMIT")

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        """The file, which is ours or, to be written, still empty; StoreError for whatever SQLite says."""
        import sqlite3

        address = f"{self.path.absolute().as_uri()}?mode={mode}"
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=_WAIT, isolation_level=None)) as file:
                if self._whose(file) is None and mode != "rwc":
                    raise self._error("it is a database without measurements of kvroom")
                yield file
        except sqlite3.Error as error:
            raise self._error(str(error)) from None

    def _whose(self, file: sqlite3.Connection) -> int | None:
        """The schema of a store of ours, None for an empty database; StoreError for another's."""
        application = file.execute("PRAGMA application_id").fetchone()[0]
        version = int(file.execute("PRAGMA user_version").fetchone()[0])
        if application == _APPLICATION and version == SCHEMA:
            return version
        if application == _APPLICATION and version > SCHEMA:
            raise self._error("a newer kvroom wrote it")
        if application or version or file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise self._error("it is a database of another program")
        return None

    def _read(self, text: str) -> Measurement:
        try:
            return measurement_of(json.loads(text))
        except (UsageError, ValueError, TypeError, RecursionError):
            raise self._error("a row of it is damaged") from None

    def _error(self, what: str) -> StoreError:
        return StoreError(
            f"What was learned cannot be used: {self.path}: {what}.",
            "Move the file away, or name another with KVROOM_LEARNED; `--no-learned` plans without it.",
        )
