"""The method is wrapped wherever it turns up, once, and left alone where it is another than expected."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from types import SimpleNamespace as Thing
from typing import Any

import pytest
from tests.plugin.fakes import Lines, config

from kvroom.plugin import OFF, register
from kvroom.plugin.attach import Watch, attach, wrap
from kvroom.plugin.log import complain
from kvroom.plugin.observer import Observer
from kvroom.plugin.table import Table, numbers, table
from kvroom.plugin.worker import measured


class Saw:
    """An observer that only counts."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def refused(self, core: Any, config: Any, error: ValueError) -> None:
        self.calls.append(f"refused: {error}")

    def started(self, core: Any, config: Any, found: Any) -> None:
        self.calls.append(f"started: {found}")


def module(behaviour: Any = None) -> Any:
    """A module with an engine core."""

    class EngineCore:
        def _initialize_kv_caches(self, vllm_config: Any) -> Any:
            if isinstance(vllm_config, BaseException):
                raise vllm_config
            return behaviour or "sized"

    return Thing(EngineCore=EngineCore)


def test_what_the_method_returns_and_raises_stays() -> None:
    found, saw = module(), Saw()
    wrap(found, table(), lambda: saw)  # type: ignore[arg-type, return-value]
    core = found.EngineCore()
    error = ValueError("too small")

    assert core._initialize_kv_caches("a config") == "sized"
    with pytest.raises(ValueError, match="too small") as raised:
        core._initialize_kv_caches(error)
    assert raised.value is error
    with pytest.raises(KeyError):
        core._initialize_kv_caches(KeyError("other"))
    assert saw.calls == ["started: sized", "refused: too small"]
    assert core._initialize_kv_caches.__name__ == "_initialize_kv_caches"


def test_it_is_wrapped_once() -> None:
    found, saw = module(), Saw()
    for _ in range(3):
        wrap(found, table(), lambda: saw)  # type: ignore[arg-type, return-value]
    found.EngineCore()._initialize_kv_caches(None)
    assert len(saw.calls) == 1


def _other(self: Any, vllm_config: Any, more: Any) -> None: ...


@pytest.mark.parametrize(
    "owner", [Thing(), type("EngineCore", (), {}), type("E", (), {"_initialize_kv_caches": _other})]
)
def test_another_method_is_left_alone(owner: Any) -> None:
    before = getattr(owner, "_initialize_kv_caches", None)
    with pytest.raises(ValueError, match="this vLLM"):
        wrap(Thing(EngineCore=owner), table(), lambda: pytest.fail("made"))  # type: ignore[arg-type, return-value]
    assert getattr(owner, "_initialize_kv_caches", None) is before


def test_a_module_that_is_loaded_is_wrapped_at_once() -> None:
    found, log = module(), Lines()
    finders: list[Any] = []
    attach(table(), {"vllm.v1.engine.core": found, "vllm": Thing(__version__="0.99.0")}, finders, {}, log)
    assert not finders
    found.EngineCore()._initialize_kv_caches(config())
    assert len(log.lines) == 1
    assert not log.warnings


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Table]:
    """A package on the path with a module to be waited for, and the table that names it."""
    from dataclasses import replace

    folder = tmp_path / "a_fake_engine"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    body = "class EngineCore:\n    def _initialize_kv_caches(self, vllm_config):\n        return vllm_config\n"
    (folder / "core.py").write_text(body)
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    finders = list(sys.meta_path)
    yield replace(table(), module="a_fake_engine.core")
    sys.meta_path[:] = finders
    sys.path.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("a_fake_engine")]:
        del sys.modules[name]


def test_a_module_is_wrapped_when_it_is_loaded(package: Table) -> None:
    log = Lines()
    for _ in range(2):
        attach(package, sys.modules, sys.meta_path, {}, log)
    assert sum(isinstance(each, Watch) for each in sys.meta_path) == 1

    found = importlib.import_module("a_fake_engine.core")

    assert not any(isinstance(each, Watch) for each in sys.meta_path)
    assert found.__spec__ is not None
    assert found.__spec__.loader is found.__loader__
    assert type(found.__loader__).__module__.startswith(("importlib", "_frozen_importlib"))
    assert found.EngineCore()._initialize_kv_caches(None) is None
    assert log.lines


def test_a_module_that_never_comes_or_breaks_costs_nothing() -> None:
    finders: list[Any] = []

    def broken(module: Any) -> None:
        raise RuntimeError("on purpose")

    watch = Watch("json", finders, broken)
    finders += [watch, *sys.meta_path]
    assert watch.find_spec("os") is None
    spec = watch.find_spec("json")
    assert spec is not None
    assert spec.loader is not None
    loaded = ModuleType("json")
    loaded.__spec__ = spec
    spec.loader.exec_module(loaded)  # the error inside is a complaint
    assert loaded.loads("1") == 1
    assert Watch("no_such_module_of_anyone", [*sys.meta_path], broken).find_spec("no_such_module_of_anyone") is None


def test_a_complaint_is_logged_once() -> None:
    log, said = Lines(), set[str]()
    for _ in range(3):
        complain("it is not written", OSError(28, "No space left on device", "/a/secret/place"), log, said)
    assert log.warnings == [
        "kvroom: it is not written (OSError: No space left on device); the start goes on without it."
    ]

    class Broken(Lines):
        def warning(self, line: str) -> None:
            raise OSError

    complain("another", ValueError("x"), Broken(), said)


def test_the_table_knows_its_releases() -> None:
    known = table()
    assert known.knows("0.10.2")
    assert known.knows("0.33.1+cpu")
    assert not known.knows("0.34.0")
    assert not known.knows("dev")
    assert not known.knows("")
    assert [known.activation_holds_graphs(each) for each in ("0.17.1", "0.18.1", "0.26.0", "0.27.1", "0.33.0")] == [
        False,
        True,
        False,
        True,
        True,
    ]
    assert numbers("v0.9.2.dev3+g123") == (0, 9, 2)


def test_registering_watches_for_the_core_and_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom kvroom.plugin import register\nregister()\nregister()\n"
        "print(type(sys.meta_path[0]).__name__, sum(type(each).__name__ == 'Watch' for each in sys.meta_path))\n"
        "print(' '.join(name for name in sys.modules if name.startswith('kvroom')))"
    )
    shown, loaded = _python(code, {})
    assert shown == "Watch 1"
    assert set(loaded.split()) <= {
        "kvroom",
        "kvroom.version",
        "kvroom.units",
        "kvroom.plugin",
        *(f"kvroom.plugin.{name}" for name in ("attach", "log", "observer", "start", "table", "worker")),
    }


@pytest.mark.parametrize("value", [*OFF, " OFF "])
def test_it_can_be_switched_off(value: str) -> None:
    code = "import sys\nfrom kvroom.plugin import register\nregister()\nprint(type(sys.meta_path[0]).__name__)\nprint()"
    assert _python(code, {"KVROOM_PLUGIN": value})[0] != "Watch"


def _python(code: str, more: dict[str, str]) -> list[str]:
    import os
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **more}
    )
    return done.stdout.splitlines()


def test_registering_here_and_asking_nobody_raises_nothing() -> None:
    finders = list(sys.meta_path)
    try:
        register()
    finally:
        sys.meta_path[:] = finders
    assert measured(None, {"weights": ["model_runner.model_memory_usage"]}) == {"backends": []}


def test_an_observer_survives_anything() -> None:
    log = Lines()
    observer = Observer(table(), "0.32.0", {"KVROOM_LEDGER": "/"}, log)

    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("on purpose")

    error = ValueError("No available memory for the cache blocks. Try more.")
    observer.refused(Hostile(), Hostile(), error)
    observer.started(Hostile(), Hostile(), Hostile())
    assert str(error) == "No available memory for the cache blocks. Try more."
    assert len(log.warnings) == 2
