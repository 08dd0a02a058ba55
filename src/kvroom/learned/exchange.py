"""Measurements in a file: taken to another machine, or written by the plugin inside of vLLM (docs/plugin.md)."""

from __future__ import annotations

import json
from typing import Any

from kvroom.errors import UsageError
from kvroom.learned.measurement import Measurement, cleaned, measurement_of

_MOST = 100_000
"""Measurements in one file."""


def imported(text: bytes, name: str) -> list[Measurement]:
    """The measurements in what ``kvroom learned --export`` wrote; UsageError, with ``name``, for anything else."""
    cure = "Give a file that `kvroom learned --export FILE` wrote."
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{name} is no JSON.", cure) from None
    if not isinstance(data, dict) or data.get("schema") != "kvroom/1" or data.get("kind") != "learned":
        raise UsageError(f"{name} holds no measurements of schema kvroom/1.", cure)
    rows = data.get("measurements")
    if not isinstance(rows, list) or len(rows) > _MOST:
        raise UsageError(f"{name} has no list of up to {_MOST:,} measurements.", cure)
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(cleaned(measurement_of(row)))
        except UsageError as error:
            raise UsageError(f"{name}, measurement {number}: {error.problem}", cure) from None
    return found


def of_start(text: bytes, name: str) -> Measurement | str | None:
    """What a ledger that the plugin wrote teaches; a sentence where it teaches nothing, None for any other file.

    Raises UsageError, with ``name``, for a ledger whose measurement is damaged.
    """
    if text.lstrip()[:1] != b"{":
        return None
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or (data.get("schema"), data.get("kind")) != ("kvroom/1", "start"):
        return None
    if data.get("measurement") is None:
        why = data.get("no_measurement")
        return why[:300] if isinstance(why, str) else "the ledger holds no measurement."
    try:
        return cleaned(measurement_of(data["measurement"]))
    except UsageError as error:
        raise UsageError(
            f"{name}: {error.problem}", "Give a file that KVROOM_LEDGER named, as it was written."
        ) from None
