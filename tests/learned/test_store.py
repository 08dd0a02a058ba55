"""The file of what was learned: kept whole, shared by processes, and never written over what is not ours."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.learned.makers import plain

from kvroom.errors import StoreError, UsageError
from kvroom.learned.store import SCHEMA, Store, store_path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data" / "learned.sqlite3")


def test_a_store_that_is_not_there_is_empty_and_stays_away(store: Store) -> None:
    assert store.every() == []
    assert store.forget_all() == 0
    assert not store.path.parent.exists()


def test_what_is_added_is_found_the_newest_first_and_once(store: Store) -> None:
    assert store.add([plain(1), plain(2)]) == 2
    assert store.add([plain(2), plain(3)]) == 1
    assert store.every() == [plain(3), plain(2), plain(1)]
    assert store.every(gpu="NVIDIA L4", vllm="0.11.0") == store.every()
    assert store.every(gpu="NVIDIA L40S") == store.every(vllm="0.12.0") == []


def test_forgetting(store: Store) -> None:
    store.add(map(plain, range(40)))
    gone = plain(7)
    assert store.forget([gone.id.upper()]) == 1
    assert gone not in store.every()
    for start in ("", gone.id):
        with pytest.raises(UsageError, match="Nothing was learned under"):
            store.forget([start])
    with pytest.raises(UsageError, match="More than one thing"):
        store.forget([plain(8).id, *"0123456789abcdef"])
    assert len(store.every()) == 39
    assert store.forget_all() == 39
    assert store.every() == []


def _database(path: Path, *statements: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as file, file:
        for statement in statements:
            file.execute(statement)


def _spoil(store: Store, how: str) -> str:
    """Put something else in place of the store; what an error says of it."""
    if how == "text":
        store.path.parent.mkdir(parents=True)
        store.path.write_text("model,gpu\n" * 500, "utf-8")
        return "not a database"
    if how == "folder":
        store.path.mkdir(parents=True)
        return "unable to open"
    if how == "another program's":
        _database(store.path, "CREATE TABLE bookmarks (url TEXT)", "INSERT INTO bookmarks VALUES ('x')")
        return "another program"
    store.add(map(plain, range(200)))
    if how == "newer":
        _database(store.path, f"PRAGMA user_version = {SCHEMA + 1}")
        return "newer kvroom"
    if how == "a row":
        _database(store.path, "UPDATE measurement SET data = '{\"gpu\": 1}'")
        return "damaged"
    data = store.path.read_bytes()
    store.path.write_bytes(data[:4096] + b"\xff" * 8192 + data[12288:] if how == "overwritten" else data[:6000])
    return "malformed"


@pytest.mark.parametrize("how", ["text", "folder", "another program's", "newer", "a row", "overwritten", "cut"])
def test_what_is_not_ours_or_damaged_is_one_error_and_is_left_alone(store: Store, how: str) -> None:
    said = _spoil(store, how)
    before = store.path.read_bytes() if store.path.is_file() else None

    with pytest.raises(StoreError, match=said) as error:
        store.every()
    assert "KVROOM_LEARNED" in error.value.cure
    if how != "a row":
        with pytest.raises(StoreError):
            store.add([plain(1)])
        with pytest.raises(StoreError):
            store.forget_all()
    assert (store.path.read_bytes() if store.path.is_file() else None) == before


def test_an_empty_file_becomes_a_store(store: Store) -> None:
    store.path.parent.mkdir()
    store.path.touch()
    assert store.every() == []
    store.add([plain(1)])
    assert store.every() == [plain(1)]


def test_all_or_nothing(store: Store) -> None:
    store.add([plain(1)])
    with pytest.raises(UsageError):
        store.forget([plain(1).id, "nothing"])
    assert store.every() == [plain(1)]


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="its folder cannot be made"):
        Store(tmp_path / "file" / "store").add([plain(1)])


WRITER = """
import sys
from pathlib import Path
from tests.learned.makers import plain
from kvroom.learned.store import Store
start = int(sys.argv[2])
for number in range(start, start + 25):
    Store(Path(sys.argv[1])).add([plain(number)])
"""


def test_processes_that_write_at_once_lose_nothing(store: Store) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(store.path), str(start)], stderr=subprocess.PIPE, text=True)
        for start in (0, 25, 50)
    ]
    assert [(writer.communicate(timeout=60)[1], writer.returncode) for writer in writers] == [("", 0)] * 3
    assert {each.sizes["available"] for each in store.every()} == set(range(75))


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVROOM_LEARNED", str(tmp_path / "other"))
    assert store_path() == tmp_path / "other"
    monkeypatch.delenv("KVROOM_LEARNED")
    assert store_path().name == "learned.sqlite3"
    assert store_path().parent.name == "kvroom"
