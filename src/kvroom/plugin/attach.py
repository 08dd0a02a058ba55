"""Gets between vLLM's engine core and its sizing of the KV cache: one method is wrapped, wherever it turns up."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, MutableSequence
from importlib.machinery import ModuleSpec
from typing import Any

from kvroom.plugin.log import Log, complain, vllm_log
from kvroom.plugin.observer import Observer
from kvroom.plugin.table import Table

_MARK = "__kvroom__"


def attach(
    table: Table,
    modules: Mapping[str, Any],
    finders: MutableSequence[Any],
    environ: Mapping[str, str],
    log: Log | None = None,
) -> None:
    """Wrap the method now if its module is loaded, else as soon as it is; twice is as good as once.

    Nothing of vLLM is imported for it: most processes that load plugins have no engine core.
    """

    def wrap_in(module: Any) -> None:
        version = str(getattr(modules.get("vllm"), "__version__", ""))
        wrap(module, table, lambda: Observer(table, version, environ, log or vllm_log()))

    module = modules.get(table.module)
    if module is not None and hasattr(module, table.owner):
        wrap_in(module)
    elif not any(isinstance(finder, Watch) for finder in finders):
        finders.insert(0, Watch(table.module, finders, wrap_in))


def wrap(module: Any, table: Table, make: Callable[[], Observer]) -> None:
    """Put the observer around the method; ValueError for one that is not what the table says."""
    owner = getattr(module, table.owner, None)
    original = inspect.getattr_static(owner, table.function, None)
    if not inspect.isfunction(original):
        raise ValueError(f"this vLLM has no {table.owner}.{table.function}")
    if hasattr(original, _MARK):
        return
    parameters = tuple(inspect.signature(original).parameters)
    if parameters != table.parameters:
        raise ValueError(f"{table.owner}.{table.function} takes {', '.join(parameters)} in this vLLM")
    observer = make()

    @functools.wraps(original)
    def watched(self: Any, vllm_config: Any) -> Any:
        try:
            found = original(self, vllm_config)
        except ValueError as error:
            observer.refused(self, vllm_config, error)
            raise
        observer.started(self, vllm_config, found)
        return found

    setattr(watched, _MARK, True)
    setattr(owner, table.function, watched)


class Watch:
    """A finder that waits for one module, hands it over once it is loaded, and is gone."""

    def __init__(self, name: str, finders: MutableSequence[Any], loaded: Callable[[Any], None]) -> None:
        self._name, self._finders, self._loaded = name, finders, loaded

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec that the others find, with a loader that tells of it; None for every other module."""
        if name != self._name:
            return None
        if self in self._finders:
            self._finders.remove(self)
        for finder in list(self._finders):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Telling(spec.loader, self._loaded)
                return spec  # type: ignore[no-any-return]
        return None


class _Telling:
    """A loader that does what another does, and tells afterwards."""

    def __init__(self, loader: Any, loaded: Callable[[Any], None]) -> None:
        self._loader, self._loaded = loader, loaded

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            self._loaded(module)
        except Exception as error:  # noqa: BLE001 - the module is loaded, and that is what was asked for
            complain("the plugin is left out", error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
