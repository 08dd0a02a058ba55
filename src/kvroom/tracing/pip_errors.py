"""What pip's output says about why it failed."""

from __future__ import annotations

import re
from pathlib import Path

from kvroom.errors import InstallError, KvroomError, UsageError, short
from kvroom.tracing.keep import python_tag
from kvroom.units import show_bytes

_NO_VERSION = re.compile(r"Could not find a version that satisfies the requirement (\S+).*\(from versions: (.*)\)")
_UNREACHED = re.compile(
    r"NewConnectionError|Max retries exceeded|Failed to establish|name resolution|getaddrinfo|Connection refused"
    r"|Connection(?:Reset|Aborted)?Error|ProxyError|SSLError|CERTIFICATE_VERIFY_FAILED|Connect timeout|ReadTimeout"
    r"|Connection to \S+ timed out|Read timed out|HTTP error \d+|HTTPError|ConnectTimeout|Network is unreachable",
    re.IGNORECASE,
)
_FULL = re.compile(
    r"No space left on device|Errno 28\b|Disk quota exceeded|not enough space on the disk", re.IGNORECASE
)
_NO_PIP = re.compile(r"No module named pip\b")
_NOISE = re.compile(r"WARNING: Location |WARNING: Retrying|\[notice\]|Looking in ", re.IGNORECASE)
_SHOWN_LINES = 5
_SHOWN_COLUMNS = 220


def versions_named(lines: list[str]) -> list[str] | None:
    """The versions that the index has, where pip found none that fits; None where it failed otherwise.

    An index that could not be reached has none, and that is another failure.
    """
    for line in lines:
        if match := _NO_VERSION.search(line):
            versions = [text.strip() for text in match[2].split(",") if text.strip() not in {"", "none"}]
            return versions if versions or not _reached_nothing(lines) else None
    return None


def pip_error(lines: list[str], task: str, folder: Path) -> KvroomError:
    """The error for a pip that failed at ``task`` ("installing torch"), building in ``folder``."""
    text = "\n".join(lines)
    if _NO_PIP.search(text):
        return InstallError(
            f"{task} failed: the new environment has no pip.", "Install your system's python3-pip and python3-venv."
        )
    if _FULL.search(text):
        return disk_full(folder)
    if _reached_nothing(lines):
        cure = "Check the network, or pip's own settings (pip config list): kvroom uses the index that pip uses."
        return InstallError(f"{task} failed: pip's index cannot be reached.\n{tail(lines)}", cure)
    versions = versions_named(lines)
    wanted = next((match[1] for line in lines if (match := _NO_VERSION.search(line))), "")
    if versions is not None and wanted.startswith("torch=="):
        there = f"The index has {', '.join(versions[-8:])}." if versions else "The index has none for it."
        return UsageError(
            f"{wanted.replace('==', ' ')} has no wheel for this Python ({python_tag()}) and machine. {there}",
            "Run kvroom with Python 3.11, 3.12 or 3.13, or name another index with --torch-index.",
        )
    return InstallError(f"{task} failed; pip's last lines:\n{tail(lines)}", "Once that is solved, run it again.")


def environment_error(lines: list[str], folder: Path) -> KvroomError:
    """The error for a virtual environment that could not be made for ``folder``."""
    if _FULL.search("\n".join(lines)):
        return disk_full(folder)
    cure = "Install what your system's Python leaves out (python3-venv, python3-pip), then try again."
    return InstallError(f"A virtual environment with pip cannot be made here:\n{tail(lines)}", cure)


def disk_full(folder: Path, needed: int = 0, free: int = 0) -> InstallError:
    """The error for a disk without room; ``needed`` and ``free`` are bytes, where known."""
    figures = f": {show_bytes(needed)} is needed, {show_bytes(free)} is free" if needed else ""
    cure = "Free some space, or set KVROOM_ENGINES to a folder on another disk. Nothing half-built was kept."
    return InstallError(f"The disk of {folder} is full{figures}.", cure)


def tail(lines: list[str]) -> str:
    """The last lines that say something."""
    telling = [line for line in lines if not _NOISE.match(line)] or lines or ["(it printed nothing)"]
    return "\n".join(f"  {short(line, _SHOWN_COLUMNS)}" for line in telling[-_SHOWN_LINES:])


def _reached_nothing(lines: list[str]) -> bool:
    """Whether connecting failed and no index answered with versions."""
    answered = any((match := _NO_VERSION.search(line)) and match[2].strip() != "none" for line in lines)
    return not answered and any(_UNREACHED.search(line) for line in lines)
