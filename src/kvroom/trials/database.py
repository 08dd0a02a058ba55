"""The database behind the store: where it is, its tables, and what its errors mean."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvroom.errors import StoreError, UsageError, short
from kvroom.redaction import clean

if TYPE_CHECKING:
    from sqlalchemy import Engine

MISSING = "pip install 'kvroom[tune]'"
SCHEMA = 1
_WAIT = 20.0
"""Seconds for which another process may hold the file."""


def default_url() -> str:
    """``trials.sqlite3`` in the user's data folder, or what KVROOM_TRIALS names."""
    given = os.environ.get("KVROOM_TRIALS", "").strip()
    if given:
        return given if "://" in given else f"sqlite:///{Path(given).expanduser().absolute()}"
    return f"sqlite:///{data_folder() / 'trials.sqlite3'}"


def data_folder() -> Path:
    """Where runs keep their logs and, by default, the store."""
    given = os.environ.get("KVROOM_RUNS", "").strip()
    if given:
        return Path(given).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("kvroom", appauthor=False) / "trials"


def tables() -> tuple[Any, Any, Any]:
    """The table of runs, that of trials, and both together; the larger parts of a row are JSON."""
    from sqlalchemy import Column, Integer, MetaData, String, Table, Text

    metadata = MetaData()
    runs = Table(
        "kvroom_run",
        metadata,
        Column("id", String(12), primary_key=True),
        Column("key", String(64), nullable=False, index=True),
        Column("schema", Integer, nullable=False, default=SCHEMA),
        Column("open", String(64), unique=True),  # the key while the run has not ended: one at a time
        Column("asked", Text, nullable=False),
        Column("created", String(40), nullable=False),
        Column("owner", Text, nullable=False, default=""),
        Column("beat", String(40), nullable=False),
        Column("ended", String(40)),
        Column("ending", Text),
    )
    trials = Table(
        "kvroom_trial",
        metadata,
        Column("run", String(12), primary_key=True),
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("state", String(16), nullable=False),
        Column("data", Text, nullable=False),
        Column("processes", Text),
    )
    return runs, trials, metadata


def engine_of(url: str) -> Engine:
    """The way to the database at ``url``; UsageError where SQLAlchemy, its driver or sense is missing."""
    try:
        from sqlalchemy import create_engine
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError
    except ImportError:
        raise UsageError("Trials are kept with SQLAlchemy, which is not installed.", MISSING) from None
    try:
        options = {"connect_args": {"timeout": _WAIT}} if url.startswith("sqlite") else {}
        return create_engine(url, **options)
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise UsageError(
            f"The store {_place(url)} is no database's URL.",
            "Write it as in --store sqlite:////home/me/trials.db (or in KVROOM_TRIALS).",
        ) from None
    except ImportError as error:
        raise UsageError(
            f"The driver of the store {_place(url)} is not installed ({error.name}).", "Install it beside kvroom."
        ) from None


def _sqlite_file(url: str) -> Path | None:
    """The file that ``url`` names; None for another database, and for one in memory."""
    path = url.removeprefix("sqlite:///")
    return Path(path.partition("?")[0]) if path != url and path and ":memory:" not in path else None


def absent(url: str) -> bool:
    """Whether ``url`` names an SQLite file that is not there and could be made."""
    file = _sqlite_file(url)
    if file is None:
        return False
    try:
        return not file.exists() and next(folder for folder in file.parents if folder.exists()).is_dir()
    except OSError:
        return False  # whoever opens it gets the reason


def make_folder(url: str) -> None:
    """The folder of an SQLite file; StoreError where it cannot be made."""
    file = _sqlite_file(url)
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The folder of {short(str(file))} cannot be made: {error.strerror}.", "Name another --store."
            ) from None


def _place(url: str) -> str:
    """``url`` without what may be a password in it."""
    return short(clean(url.rpartition("@")[2])) or "''"


def told(url: str, error: Exception) -> StoreError:
    """What a database's error means for a person."""
    said = clean(str(getattr(error, "orig", None) or error)).splitlines()[0]
    place = _place(url)
    if "full" in said or "No space" in said:
        return StoreError(
            f"The disk of {place} is full: {said}.",
            "Make room and run the same command again: finished trials are kept, and it goes on after them.",
        )
    return StoreError(f"The trials in {place} cannot be read or written: {said}.", "Name another --store URL.")
