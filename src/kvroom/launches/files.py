"""Launches from a file, by what the file holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kvroom.errors import UsageError
from kvroom.launches.launch import Launch
from kvroom.launches.read import read_command

_LARGEST = 20_000_000


def read_file(path: str | Path, *, variables: Mapping[str, str] | None = None) -> list[Launch]:
    """The vLLM launches that the file at ``path`` makes.

    A shell script, or a file with one command. Raises UsageError when the file cannot be read or
    starts no vLLM server.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} has more than {_LARGEST:,} bytes.", "Give the launch command alone.")
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", "Check the path.") from None
    return read_text(text, source=str(path), variables=variables)


def read_text(text: str, *, source: str, variables: Mapping[str, str] | None = None) -> list[Launch]:
    """The vLLM launches in ``text``, whose kind is told from its content."""
    return read_command(text, source=source, variables=variables)
