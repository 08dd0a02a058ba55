"""What the plugin touches in vLLM, by release: data in ``releases.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Table:
    """Names in vLLM and the releases in which they were read."""

    module: str
    owner: str
    """The class of the function that is wrapped."""
    function: str
    parameters: tuple[str, ...]
    """The function's, by which it is recognised; with others it is left alone."""
    refusals: tuple[str, ...]
    """How the errors begin that get more lines."""
    executors: frozenset[str]
    """Classes whose workers may be asked: their answers cannot be left lying in a queue."""
    worker: Mapping[str, tuple[str, ...]]
    """Where a worker keeps what it measured: attribute paths by name, the first that is there counts."""
    flags: tuple[tuple[str, str, Any], ...]
    """A flag, where VllmConfig keeps its value, and the value that need not be written."""
    since: tuple[int, ...]
    until: tuple[int, ...]
    holds_graphs: tuple[tuple[tuple[int, ...], tuple[int, ...] | None], ...]
    """Releases whose activation peak counts the estimated CUDA graphs as well."""

    def knows(self, version: str) -> bool:
        """Whether the names were read in that release."""
        release = numbers(version)
        return release is not None and self.since <= release < self.until

    def activation_holds_graphs(self, version: str) -> bool:
        """Whether that release adds the counted graphs to its activation peak."""
        release = numbers(version) or ()
        return any(since <= release and (until is None or release < until) for since, until in self.holds_graphs)


def numbers(version: str) -> tuple[int, ...] | None:
    """A version as three numbers, None for a text without any; builds from source call themselves 0.1.dev.

    >>> numbers("0.32.0+cpu"), numbers("dev")
    ((0, 32, 0), None)
    """
    found = _NUMBERS.match(version.strip().removeprefix("v"))
    return tuple(int(part or 0) for part in found.groups()) if found else None


@cache
def table() -> Table:
    """The packaged table."""
    data = json.loads(Path(__file__).with_name("releases.json").read_text("utf-8"))
    return Table(
        data["module"],
        data["class"],
        data["function"],
        tuple(data["parameters"]),
        tuple(data["refusals"]),
        frozenset(data["executors"]),
        {name: tuple(paths) for name, paths in data["worker"].items() if name != "source"},
        tuple((name, path, usual) for name, path, usual in data["flags"]),
        _release(data["since"]),
        _release(data["until"]),
        tuple(
            (_release(since), _release(until) if until else None) for since, until in data["activation_holds_graphs"]
        ),
    )


def _release(text: str) -> tuple[int, ...]:
    found = numbers(text)
    assert found is not None
    return found
