"""The settings of one side: as shown or written, else the defaults of its release."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

from kvroom.compare.names import NOT_COMPARED, ORDER
from kvroom.compare.side import Setting
from kvroom.ledger.overhead import counts_graphs
from kvroom.ledger.predict import Prediction
from kvroom.logs.reading import Reading
from kvroom.logs.settings import engine_settings
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.arguments import decides
from kvroom.vllm.releases import Release
from kvroom.vllm.rules import rules_for

_GRAPH_MODE = re.compile(r"cudagraph_mode['\"]?\s*[:=]\s*<?(?:CUDAGraphMode\.)?([A-Z_]{4,30})")
_ARGUMENTS = ("args_non_default", "args_namespace", "command_line")
"""Messages that show every argument that was given."""
_FILLED = (
    "engine",
    "gpu_memory_utilization",
    "dtype",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "kv_cache_dtype",
    "cudagraph_mode",
    "enable_prefix_caching",
    "enable_chunked_prefill",
)
"""Settings that vLLM fills in itself, under these names in ``kvroom.vllm.settings``."""
_LEFT_OPEN = frozenset({*_FILLED, "quantization", "attention_backend", "block_size", "model"}) | {
    name for name in ORDER if name.startswith("mamba_")
}
"""What is not given is not "not set" but filled in by rules that need the model and the card."""
_FIXED = {
    field.name: field.default
    for field in fields(EngineArgs)
    if field.name in ORDER and field.default is not MISSING and field.name not in _LEFT_OPEN
}
"""Arguments whose default is the same everywhere."""
_DEFAULTED = _FIXED.keys() | {"gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "kv_cache_dtype"}
"""Arguments that a log also prints where they were left to their defaults."""
_DTYPES = {"half": "float16", "float": "float32"}


def settings_of_log(reading: Reading, release: Release | None, prediction: Prediction | None) -> dict[str, Setting]:
    """What the log shows, and where it shows the arguments also what was left to the defaults."""
    shown = arguments_shown(reading)
    found = {
        name: Setting(value, default=shown and name in _DEFAULTED and name not in reading.given)
        for name, value in _shown(reading)
    }
    if not shown:
        filled: dict[str, Any] = {}
    else:
        filled = dict(_FIXED) | dict(_of_release(release, found)) | dict(_of_prediction(prediction))
    known = {"engine", "graph_estimate", "quantization"} if prediction is not None else set()
    filled |= {name: value for name, value in _of_prediction(prediction) if name in known}
    for name, value in filled.items():
        if value == "auto" or found.get(name, Setting("auto")).value == "auto":
            found[name] = Setting(value, default=True)
    return found


def settings_of_command(prediction: Prediction, version: str) -> dict[str, Setting]:
    """What a command says and what its release makes of the rest."""
    setup = prediction.setup
    machine, given = setup.machine, setup.args.given
    found = {
        "version": Setting(version),
        "model": Setting(setup.args.model),
        "device": Setting(machine.device.name),
        "total_bytes": Setting(machine.device.total_bytes, default=True),
        "gpus": Setting(_world(setup.args)),
    }
    if machine.free_bytes is not None:
        found["free_bytes"] = Setting(machine.free_bytes)
    for name, value in {**_FIXED, **given}.items():
        if _compared(name):
            found[name] = Setting(value if name in given else getattr(setup.args, name), default=name not in given)
    for name, value in _of_prediction(prediction):
        found[name] = Setting(value, default=name not in given)
    return found


def arguments_shown(reading: Reading) -> bool:
    """Whether the log shows which arguments were given, so that the others are at their defaults."""
    return reading.facts.first(*_ARGUMENTS) is not None


def _shown(reading: Reading) -> Iterator[tuple[str, Any]]:
    """The settings that the log shows, under the names of ``ORDER``."""
    engine = engine_settings(reading.facts)
    printed = {
        "version": reading.version,
        "engine": reading.engine,
        "model": reading.model,
        "device": reading.device,
        "total_bytes": reading.size("total"),
        "gpus": reading.gpus,
        "attention_backend": reading.attention_backend,
        "graph_estimate": _estimate_printed(reading),
        "cudagraph_mode": _graph_mode(reading),
        "free_bytes": reading.free_bytes,
    }
    yield from ((name, value) for name, value in printed.items() if value is not None)
    for name, value in reading.settings.items():
        if name in printed or not _compared(name):
            continue
        if name in {"dtype", "quantization"}:
            value = engine.get(name, value)  # noqa: PLW2901 - the engine prints what became of it
        if name == "max_model_len":
            value = _length(reading, value)  # noqa: PLW2901
        if name == "dtype" and isinstance(value, str):
            value = _DTYPES.get(value, value)  # noqa: PLW2901
        yield name, value
    if "max_model_len" not in reading.settings and reading.pool.max_model_len:
        yield "max_model_len", reading.pool.max_model_len


def _compared(name: str) -> bool:
    return name not in NOT_COMPARED and (name in ORDER or decides(name))


def _length(reading: Reading, value: Any) -> Any:
    """The length that came of the argument: ``auto`` and -1 are settled while starting."""
    if isinstance(value, int) and value > 0:
        return value
    return reading.pool.max_model_len or value


def _graph_mode(reading: Reading) -> str | None:
    fact = reading.facts.last("graph_mode")
    if fact is not None:
        return fact.values["mode"].rpartition(".")[2]
    fact = reading.facts.last("engine_v1", "engine_v0")
    match = _GRAPH_MODE.search(fact.values["config"]) if fact else None
    return match[1] if match else None


def _estimate_printed(reading: Reading) -> bool | None:
    """Whether the log says that the graph estimate was subtracted."""
    for fact in reading.facts.all("graph_equivalent", "graph_equivalent_short"):
        if "profiling is enabled" in fact.text:
            return True
    return None


def _of_release(release: Release | None, found: dict[str, Setting]) -> Iterator[tuple[str, Any]]:
    """Defaults that the release alone decides."""
    if release is None:
        return
    rules = rules_for(release)
    yield "gpu_memory_utilization", rules["gpu_memory_utilization"]
    eager = found.get("enforce_eager")
    if rules["cudagraph_estimate"] != "default" or (eager is not None and eager.value is True):
        yield "graph_estimate", False


def _of_prediction(prediction: Prediction | None) -> Iterator[tuple[str, Any]]:
    """What the rules make of what was left out."""
    if prediction is None or prediction.settings is None:
        return
    settings, setup = prediction.settings, prediction.setup
    yield from ((name, getattr(settings, name)) for name in _FILLED)
    quantization = setup.shape.quantization
    yield "quantization", setup.args.quantization or (quantization.method if quantization else None)
    yield "graph_estimate", counts_graphs(setup.args, settings, setup.machine.device)
    if prediction.backend is not None:
        yield "attention_backend", prediction.backend.name


def _world(args: EngineArgs) -> int:
    return args.tensor_parallel_size * args.pipeline_parallel_size * args.data_parallel_size
