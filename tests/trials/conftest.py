"""A model's folder, a command that starts the fake server, and a store."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.engine.tiny import CONFIG
from tests.trials.fake_vllm import write_fake

from kvroom.trials.store import Store


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model of 1,024 bytes of cache a token."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    return str(folder)


@pytest.fixture
def command(tmp_path: Path, model: str) -> list[str]:
    """The words that start the fake server."""
    fake = write_fake(tmp_path)
    return [f"PYTHONPATH={fake}", sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in a file of its own."""
    return Store(f"sqlite:///{tmp_path / 'trials.sqlite3'}")
