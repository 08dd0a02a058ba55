"""Environments of the peers: one each, in a folder that is kept, made by this Python from a package index."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_cache_dir

LIST = Path(__file__).with_name("peers.json")
_PATIENCE = 1800
_SAID = 160


@dataclass(frozen=True, slots=True)
class Peer:
    """One planner: the package that has it and what is known about it."""

    name: str
    version: str
    requires: str
    """What is installed, ``package==version``."""
    licence: str
    homepage: str
    takes: str
    gives: str
    asked: str
    """How its answer was got, one line."""
    pool: str
    """``own``: it states a pool or the parts of one; ``derived``: what its weights leave of the budget."""

    @property
    def adapter(self) -> Path:
        """The script that asks it."""
        return Path(__file__).parent / "adapters" / f"ask_{self.name.replace('-', '_')}.py"


class NotInstallable(Exception):
    """A peer that the package index does not have, or that does not install; the message says why."""


def peers(names: Sequence[str] = ()) -> list[Peer]:
    """The peers of ``peers.json``, or those of ``names``; KeyError for a name that is none."""
    listed: dict[str, dict[str, Any]] = json.loads(LIST.read_text("utf-8"))["peers"]
    return [Peer(name, **listed[name]) for name in names or listed]


def default_folder() -> Path:
    """Where environments are kept where nobody says."""
    return Path(user_cache_dir("kvroom", appauthor=False)) / "peers"


def python_of(peer: Peer, folder: Path) -> Path:
    """The Python of ``peer``'s environment under ``folder``, which is made where it is not there.

    Raises NotInstallable.
    """
    own = folder / peer.requires.replace("==", "-")
    python = own / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = own / "installed"
    if done.exists():
        return python
    if not python.exists():
        venv.create(own, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", peer.requires]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstallable("pip did not end") from None
    if found.returncode:
        errors = [line for line in found.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstallable((errors or ["pip failed"])[-1].removeprefix("ERROR: ")[:_SAID])
    done.touch()
    return python


def child_environment(hub: str, home: Path) -> Mapping[str, str]:
    """What a peer's process sees: no tokens, no settings of this user, the local hub."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1"}
    return {**kept, **quiet, "HF_ENDPOINT": hub, "HF_HOME": str(home), "HOME": str(home), "PYTHONNOUSERSITE": "1"}
