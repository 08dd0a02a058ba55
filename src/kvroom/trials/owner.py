"""Whose a run is: one kvroom works on it at a time, and what is written in its row tells which."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kvroom.errors import StoreError, short
from kvroom.trials.supervise import Process, started_at

_SILENT = 180.0
"""Seconds after which a kvroom on another host that wrote nothing is taken to have ended."""


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def me() -> str:
    """What stands for the present process, as it is written into the row of its run."""
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "started": started_at(os.getpid())})


def refuse_if_taken(row: Mapping[str, Any]) -> None:
    """StoreError where the process that works on a run is still there."""
    if not row["owner"]:
        return
    owner = owner_of(row)
    here = owner["host"] == socket.gethostname()
    try:
        silent = (datetime.now(UTC) - datetime.fromisoformat(row["beat"])).total_seconds() > _SILENT
    except (TypeError, ValueError):
        raise damaged(row) from None
    if here and (owner["pid"] == os.getpid() or not Process(owner["pid"], owner["started"]).alive()):
        return
    if not here and silent:
        return
    raise StoreError(
        f"Another kvroom (process {owner['pid']}{'' if here else ' on ' + owner['host']}) works on this very run.",
        "Wait for it, or give this one another --store.",
    )


def owner_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Who works on a run: host, process, and when that began. StoreError where the row does not say it."""
    try:
        owner = json.loads(row["owner"])
        return {"host": str(owner["host"]), "pid": int(owner["pid"]), "started": owner["started"]}
    except (KeyError, TypeError, ValueError):
        raise damaged(row) from None


def damaged(row: Mapping[str, Any]) -> StoreError:
    """The error for a row that kvroom did not write so."""
    return StoreError(f"Run {short(str(row['id']), 40)} in the store is damaged.", "Name another --store.")
