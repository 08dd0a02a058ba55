"""The load: how long prompts and answers are, and when they arrive; fixed, or read from a trace."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from kvroom.errors import UsageError, short
from kvroom.files import read_limited, reason

_LARGEST = 200_000_000
_MOST_TOKENS = 2**31
_INPUT = ("input_len", "input_length", "input_tokens", "prompt_len", "prompt_tokens", "contexttokens", "request tokens")
_OUTPUT = (
    "output_len", "output_length", "output_tokens", "completion_tokens", "generatedtokens", "response tokens",
)  # fmt: skip
_ARRIVAL = ("arrival", "arrival_time", "arrived_at", "timestamp", "time")
_MILLISECONDS = "hash_ids"
"""Traces with this field (Mooncake's) count milliseconds."""
_CURE = "Give JSON lines or CSV with input_len and output_len, and perhaps arrival_time in seconds."


@dataclass(frozen=True, slots=True)
class Job:
    """One request of the load: tokens in and out, and seconds after the first one."""

    input_len: int
    output_len: int
    arrival: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs, in order; when more are asked for than there are, they begin again."""

    jobs: tuple[Job, ...]
    source: str = ""
    left_out: int = 0
    """Jobs longer than the server takes."""

    def take(self, count: int, start: int = 0) -> tuple[Job, ...]:
        """``count`` jobs from the one at ``start`` on."""
        return tuple(self.jobs[(start + i) % len(self.jobs)] for i in range(count))

    @property
    def timed(self) -> bool:
        """Whether the trace says when requests arrive."""
        return all(job.arrival is not None for job in self.jobs)

    @property
    def mean(self) -> tuple[float, float]:
        """Mean tokens in and out."""
        count = len(self.jobs)
        return sum(job.input_len for job in self.jobs) / count, sum(job.output_len for job in self.jobs) / count

    def within(self, max_model_len: int | None) -> Workload:
        """The jobs that a server of that length takes; UsageError where none is left."""
        if max_model_len is None:
            return self
        kept = tuple(job for job in self.jobs if job.input_len + job.output_len <= max_model_len)
        if not kept:
            job = self.jobs[0]
            raise UsageError(
                f"{job.input_len:,} tokens in and {job.output_len:,} out are more than the server's max_model_len "
                f"{max_model_len:,}.",
                "Lower --input-len or --output-len, or raise --max-model-len of the server.",
            )
        return Workload(kept, self.source, self.left_out + len(self.jobs) - len(kept))


def fixed(input_len: int, output_len: int) -> Workload:
    """Every request alike; UsageError for lengths that no request has."""
    if not (0 < input_len < _MOST_TOKENS and 0 < output_len < _MOST_TOKENS):
        raise UsageError(
            f"--input-len {input_len} with --output-len {output_len}: no request has such lengths.",
            f"Each is at least 1 and below {_MOST_TOKENS:,} tokens.",
        )
    return Workload((Job(input_len, output_len),))


def read_trace(path: Path) -> Workload:
    """The jobs in a JSONL or CSV file, in order of arrival; UsageError for a file that holds none.

    Names of columns are those of the public traces: Azure's, Mooncake's, BurstGPT's, vLLM's.
    """
    name = short(str(path))
    try:
        text = read_limited(path, _LARGEST).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise UsageError(f"{name} cannot be read: {reason(error)}.", _CURE) from None
    rows = _json_rows(text, name) if text.lstrip().startswith("{") else csv.DictReader(io.StringIO(text))
    try:
        jobs = [_job(row, f"{name}:{number}") for number, row in enumerate(rows, 1)]
    except csv.Error as error:
        raise UsageError(f"{name} is no CSV: {error}.", _CURE) from None
    if not jobs:
        raise UsageError(f"{name} holds no request.", _CURE)
    return Workload(_from_the_first(jobs), name)


def _json_rows(text: str, name: str) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise UsageError(f"{name}:{number} is no JSON object.", _CURE)
        yield row


def _job(row: Mapping[str, Any], where: str) -> Job:
    lower = {str(key).strip().lower(): value for key, value in row.items()}
    found = [_tokens(lower, names, where) for names in (_INPUT, _OUTPUT)]
    raw = next((lower[name] for name in _ARRIVAL if lower.get(name) not in {None, ""}), None)
    arrival = None if raw is None else _seconds(raw, where)
    if arrival is not None and _MILLISECONDS in lower:
        arrival /= 1000
    return Job(found[0], max(found[1], 1), arrival)


def _tokens(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> int:
    value = next((row[name] for name in names if name in row), None)
    try:
        number = float(value) if value is not None and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < _MOST_TOKENS or number != int(number) or (names is _INPUT and number < 1):
        raise UsageError(f"{where}: {names[0]} is {short(repr(value), 40)}, not a number of tokens.", _CURE)
    return int(number)


def _seconds(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        try:
            number = datetime.fromisoformat(str(value)[:26]).timestamp()  # nanoseconds are cut off
        except ValueError:
            number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{where}: {short(repr(value), 40)} is no time.", _CURE)
    return number


def _from_the_first(jobs: list[Job]) -> tuple[Job, ...]:
    """The jobs in order of arrival, the first at 0; as they are where not all have a time."""
    times = [job.arrival for job in jobs if job.arrival is not None]
    if len(times) < len(jobs):
        return tuple(Job(job.input_len, job.output_len) for job in jobs)
    first = min(times)
    placed = (Job(job.input_len, job.output_len, (job.arrival or 0.0) - first) for job in jobs)
    return tuple(sorted(placed, key=lambda job: job.arrival or 0.0))
