"""What holds for every test: nothing that the user learned is read, and nothing is added to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_store_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """KVROOM_LEARNED names a file that nobody can make."""
    blocked = tmp_path_factory.mktemp("learned") / "a-file"
    blocked.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVROOM_LEARNED", str(blocked / "learned.sqlite3"))
        yield


@pytest.fixture
def store_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for a store of this test's own, where there is none yet."""
    path = tmp_path / "data" / "learned.sqlite3"
    monkeypatch.setenv("KVROOM_LEARNED", str(path))
    return path
