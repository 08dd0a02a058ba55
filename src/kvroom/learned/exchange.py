"""Measurements in a file, to be taken to another machine."""

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
