from __future__ import annotations

from pathlib import Path

import pytest

from kvroom.errors import InstallError, UsageError
from kvroom.tracing.pip_errors import environment_error, pip_error, tail, versions_named

FOLDER = Path("/cache/engines")
NO_VERSION = "ERROR: Could not find a version that satisfies the requirement {} (from versions: {})"
RETRY = (
    "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError(...: Failed to "
    "establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/torch/"
)


def test_versions_that_the_index_has() -> None:
    assert versions_named([NO_VERSION.format("vllm==9", "0.1, 0.2.0")]) == ["0.1", "0.2.0"]
    assert versions_named(["x", NO_VERSION.format("vllm==9", "none")]) == []
    assert versions_named([RETRY, NO_VERSION.format("vllm==9", "none")]) is None
    assert versions_named(["ERROR: ResolutionImpossible"]) is None


@pytest.mark.parametrize(
    ("lines", "kind", "message"),
    [
        (["/usr/bin/python3: No module named pip"], InstallError, "has no pip"),
        (["ERROR: Could not install: [Errno 28] No space left on device"], InstallError, "is full"),
        ([RETRY, NO_VERSION.format("torch==2.13.0", "none")], InstallError, "cannot be reached"),
        ([NO_VERSION.format("torch==2.13.0", "2.1.0, 2.2.0")], UsageError, "torch 2.13.0 has no wheel for this Python"),
        ([NO_VERSION.format("numpy", "none")], InstallError, "last lines"),
        (["one", "ERROR: ResolutionImpossible: two"], InstallError, "ResolutionImpossible: two"),
        ([], InstallError, "it printed nothing"),
    ],
)
def test_what_pips_output_means(lines: list[str], kind: type[Exception], message: str) -> None:
    error = pip_error(lines, "Installing torch", FOLDER)
    assert isinstance(error, kind)
    assert message in str(error)
    assert error.cure


def test_the_address_of_the_index_is_shown_without_its_password() -> None:
    lines = ["ERROR: HTTP error 401 while getting https://me:hunter22@index.example/simple/torch/"]
    assert "hunter22" not in str(pip_error(lines, "Installing torch", FOLDER))


def test_the_last_lines_are_few_and_short() -> None:
    shown = tail([*(f"line {number}" for number in range(50)), "x" * 5000, "[notice] A new release of pip"])
    assert "line 45" not in shown
    assert "line 46" in shown
    assert len(shown) < 500
    assert "notice" not in shown


def test_an_environment_that_cannot_be_made() -> None:
    assert "python3-venv" in str(environment_error(["ensurepip is not available"], FOLDER))
    assert "is full" in str(environment_error(["OSError: [Errno 28] No space left on device"], FOLDER))
