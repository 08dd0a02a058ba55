from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvroom.cli.tune import _plain
from kvroom.errors import StoreError, UsageError
from kvroom.trials.figures import Figures, Peak, Sample
from kvroom.trials.store import Store
from kvroom.trials.supervise import Process
from kvroom.trials.trial import Forecast, Proposal, State, Trial, trial_of

ASKED = {"goal": "context=4096", "command": ["vllm", "serve", "m"]}
ENDING = {
    "met": True, "best": 1, "command": [], "why": [], "margin": [], "launches": 1, "started": 1, "skipped": 0,
    "stopped": "",
}  # fmt: skip


def trial(number: int, **changed: Any) -> Trial:
    proposal = Proposal(changes={"max_model_len": 4096 * number}, step={"max_model_len": 4096 * number}, why="w")
    figures = Figures(65536, 4096 * number, Peak(1, 2), 3.0, (Sample(0.1, 0.01, 100.0), Sample(0.2, None, 90.0)))
    forecast = Forecast("fits", remedies=({"max_num_seqs": 4},))
    kept = {"state": State.STARTED, "forecast": forecast, "figures": figures, "remedies": ({"x": 1},)}
    return Trial(number=number, proposal=proposal, **{**kept, **changed})


def test_a_trial_comes_back_as_it_was(store: Store) -> None:
    run, resumed = store.take("key", ASKED)
    kept = [trial(1), trial(2, state=State.FAILED, figures=None, reason="short"), trial(3, state=State.SKIPPED)]
    for each in kept:
        store.finish(run, each)

    assert not resumed
    assert store.trials(run) == kept
    assert [trial_of(each.data()) for each in kept] == kept


def test_a_run_that_has_not_ended_is_taken_up_and_one_that_has_is_not(store: Store) -> None:
    run, _ = store.take("key", ASKED)
    store.leave(run)
    again, resumed = store.take("key", ASKED)
    assert (again.id, resumed) == (run.id, True)
    store.end(run, ENDING)
    after, resumed = store.take("key", ASKED)
    assert (after.id != run.id, resumed) == (True, False)
    fresh, resumed = store.take("key", ASKED, fresh=True)
    assert (fresh.id not in {run.id, after.id}, resumed) == (True, False)
    assert len(store.runs()) == 3


def test_what_was_begun_is_known_with_its_processes(store: Store, tmp_path: Path) -> None:
    run, _ = store.take("key", ASKED)
    store.begin(run, 1, {"why": "x"}, tmp_path)
    store.note_processes(run, 1, (Process(5, 6),), "box")

    (row,) = store.unfinished(run)
    assert (row["number"], row["folder"], row["container"]) == (1, str(tmp_path), "box")
    assert row["processes"] == [{"pid": 5, "started": 6}]
    assert store.trials(run) == []
    store.finish(run, trial(1))
    assert store.unfinished(run) == []


def test_two_kvrooms_do_not_work_on_one_run(store: Store) -> None:
    """A process that is alive has taken the run; when it has ended, the run is free."""
    code = (
        "import sys; from kvroom.trials.store import Store\n"
        f"Store({store.url!r}).take('key', {{}}); print('taken', flush=True); sys.stdin.read()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == "taken\n"
    with pytest.raises(StoreError, match=f"process {other.pid}"):
        store.take("key", ASKED)
    store.take("another key", ASKED)  # of the same store
    other.kill()
    other.wait()
    for stream in (other.stdin, other.stdout):
        stream.close()

    assert store.take("key", ASKED)[1]


def test_many_processes_write_to_one_store(store: Store) -> None:
    store.runs()
    code = (
        "import sys; from kvroom.trials.store import Store\n"
        "from tests.trials.test_store import trial\n"
        f"store = Store({store.url!r}); run, _ = store.take(sys.argv[1], {{}})\n"
        "[store.finish(run, trial(n)) for n in range(1, 9)]\n"
    )
    every = [subprocess.Popen([sys.executable, "-c", code, str(n)]) for n in range(3)]
    assert [process.wait(60) for process in every] == [0, 0, 0]
    assert sorted(len(store.trials(run)) for run in store.runs()) == [8, 8, 8]


def test_a_full_disk_is_said_so_and_loses_nothing(store: Store) -> None:
    from sqlalchemy import event

    run, _ = store.take("key", ASKED)
    store.finish(run, trial(1))
    store.engine.dispose()

    @event.listens_for(store.engine, "connect")
    def limit(connection: Any, _: Any) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")  # as a disk without room

    with pytest.raises(StoreError, match=r"disk .* is full"):
        store.finish(run, trial(2, reason="x" * 100_000))
    assert store.trials(run) == [trial(1)]


def test_what_is_no_store_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store(f"sqlite:///{tmp_path / 'text'}").runs()
    with pytest.raises(StoreError, match="cannot be made"):
        Store(f"sqlite:///{tmp_path / 'text' / 'below' / 'x.db'}").runs()
    for url in ("nonsense", "nosuch://me:s3cret@x", "postgresql+nothing://x"):
        with pytest.raises(UsageError, match=re.escape(f"The store {url.rpartition('@')[2]} is no")):
            Store(url)


def test_a_password_in_the_url_is_never_shown() -> None:
    error = StoreError("The trials in postgresql://user:s3cret@host/db cannot be read.")
    assert "s3cret" not in str(error)
    assert "s3cret" not in _plain("postgresql://user:s3cret@host/db")


def test_a_run_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    with pytest.raises(UsageError, match="No run was made"):
        store.run("")
    run, _ = store.take("key", ASKED)
    assert store.run(run.id[:5]).id == run.id == store.run("").id
    with pytest.raises(UsageError, match="There is no run"):
        store.run("zzz")


def test_a_damaged_row_is_one_error(store: Store) -> None:
    from sqlalchemy import text

    run, _ = store.take("key", ASKED)
    store.finish(run, trial(1))
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE kvroom_trial SET data = '{\"number\": 1}'"))
    with pytest.raises(StoreError, match="damaged"):
        store.trials(run)


@pytest.mark.parametrize(
    "change",
    [
        "asked = '[]'",
        "asked = '{{'",
        "ending = '7'",
        "ending = '{\"met\": true}'",
        "owner = 'x'",
        "owner = '{}'",
        "beat = 'x'",
    ],
)
def test_a_damaged_run_is_one_error(store: Store, change: str) -> None:
    from sqlalchemy import text

    run, _ = store.take("key", ASKED)
    with store.engine.begin() as connection:
        connection.execute(text(f"UPDATE kvroom_run SET {change.replace(':', chr(92) + ':')}"))
    with pytest.raises(StoreError, match=f"Run {run.id} in the store is damaged"):
        store.take("key", ASKED) if change.startswith(("owner", "beat")) else store.runs()


def test_looking_makes_no_file_and_no_table(tmp_path: Path) -> None:
    absent, foreign = tmp_path / "absent.db", tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = foreign.read_bytes()

    assert [Store(f"sqlite:///{file}").runs() for file in (absent, foreign)] == [[], []]
    assert not absent.exists()
    assert foreign.read_bytes() == before


def test_a_run_of_another_question_on_this_machine_is_known(store: Store) -> None:
    code = (
        "import sys; from kvroom.trials.store import Store\n"
        f"Store({store.url!r}).take('another', {{}}); print('taken', flush=True); sys.stdin.read()\n"
    )
    run, _ = store.take("key", ASKED)
    assert store.others(run) == 0
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == "taken\n"
    assert store.others(run) == 1
    other.kill()
    other.wait()
    for stream in (other.stdin, other.stdout):
        stream.close()
    assert store.others(run) == 0


def test_without_sqlalchemy_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(UsageError, match=r"pip install 'kvroom\[tune\]'"):
        Store("sqlite://")
