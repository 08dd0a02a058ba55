"""Servers to ask, and a way to run the command on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kvroom.cli.verify import verify


@dataclass(frozen=True)
class Ran:
    """What a run of the command printed."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        """Its JSON."""
        data: dict[str, Any] = json.loads(self.out)
        return data

    def check(self, name: str) -> dict[str, Any]:
        """The check of that name."""
        found: dict[str, Any] = next(check for check in self.data["checks"] if check["name"] == name)
        return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs ``kvroom verify`` with the words given; errors come through."""

    def run_it(*words: str) -> Ran:
        code = verify.main(list(words), standalone_mode=False)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run_it
