"""NVIDIA's measured kernel tables, through the package aiconfigurator (the extra ``kvroom[perf]``).

Its compiled engine is asked for steps only; scheduling is kvroom's own, so that both columns tell the same load.
It reads the model's config from a folder that is made for it, never from the network.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kvroom.devices.device import Device
from kvroom.errors import ModelError, UsageError
from kvroom.ledger.predict import Prediction
from kvroom.models.defaults import merge, with_class_defaults
from kvroom.models.schemes import ONLINE, Grain, Scheme
from kvroom.models.shape import ModelShape
from kvroom.models.source import raw_config
from kvroom.throughput.tables import KernelTables, NotInTables

MISSING = "pip install 'kvroom[perf]'"
_PACKAGE = "aiconfigurator_core"
_FOLDER = "<the model>"
"""Stands for the folder of the config, until what else is a path has been taken out."""
_BACKEND = "vllm"
_ATTENTION = ("model.layers.0.self_attn.q_proj",)


@dataclass(frozen=True, slots=True, eq=False)
class AicTables:
    """The compiled engine of one launch. Compared by identity."""

    source: str
    caveat: str
    engine: Any
    """``aiconfigurator_core.sdk.EngineHandle``."""

    def decode(self, sequences: int, context: int) -> float:
        """Seconds of a step in which ``sequences`` of ``context`` tokens decode."""
        with _asked():
            return float(self.engine.decode_step_latency(sequences, context, 2)) / 1e3

    def mixed(self, chunk: int, prompt: int, sequences: int, context: int) -> float:
        """Seconds of a step that computes ``chunk`` tokens of prompts of ``prompt`` tokens as well."""
        with _asked():
            _, shared, prompts, _ = self.engine.mixed_step_breakdown(chunk, sequences, prompt, 2)
            decoding = self.engine.mixed_step_breakdown(chunk, sequences, context, 2)[3] if sequences else 0.0
            return float(shared + prompts + decoding) / 1e3


class Aiconfigurator:
    """Opens the tables of the installed aiconfigurator; UsageError where it is missing."""

    def __init__(self) -> None:
        try:
            with _quiet():
                self._sdk = importlib.import_module(f"{_PACKAGE}.sdk")
                self._databases = importlib.import_module(f"{_PACKAGE}.sdk.perf_database")
        except ImportError:
            raise UsageError("--perf aiconfigurator needs the aiconfigurator package.", f"Run: {MISSING}") from None
        self.name = f"aiconfigurator {metadata.version('aiconfigurator-core')}"

    def open(self, prediction: Prediction, *, offline: bool) -> KernelTables:
        """The tables of a launch; NotInTables where they do not know its card, model or storage."""
        device, args = prediction.setup.machine.device, prediction.setup.args
        system = _names()["systems"].get(device.id)
        if system is None:
            raise NotInTables(f"no kernels measured on {device.name}")
        if args.prefill_context_parallel_size > 1 or args.decode_context_parallel_size > 1:
            raise NotInTables("context parallelism cannot be asked of it")
        modes, sizes = modes_of(prediction), sizes_of(prediction)
        config, quantization = _config(prediction, offline)
        with TemporaryDirectory(prefix="kvroom-perf-") as folder, _asked(folder, prediction.setup.shape.name):
            Path(folder, "config.json").write_text(json.dumps(config), "utf-8")
            if quantization is not None:
                Path(folder, "hf_quant_config.json").write_text(json.dumps(quantization), "utf-8")
            version = str((self._databases.get_version_slots(system, _BACKEND) or {})["current"])
            engine = self._sdk.EngineHandle.compile(folder, system, _BACKEND, backend_version=version, **sizes, **modes)
            engine.decode_step_latency(1, 1024, 2)
        caveat = str(_names()["caveats"].get(modes["gemm_quant_mode"], ""))
        return AicTables(f"{self.name}, vllm {version}", caveat, engine)


def sizes_of(prediction: Prediction) -> dict[str, int]:
    """The launch's parallelism in aiconfigurator's words: replicas count only where they share experts."""
    args, shape = prediction.setup.args, prediction.setup.shape
    replicas = args.data_parallel_size if shape.is_moe else 1
    width = args.tensor_parallel_size * replicas
    spread = shape.is_moe and args.enable_expert_parallel
    return {
        "tp_size": args.tensor_parallel_size,
        "pp_size": args.pipeline_parallel_size,
        "attention_dp_size": replicas,
        "moe_tp_size": 1 if spread else width,
        "moe_ep_size": width if spread else 1,
    }


def modes_of(prediction: Prediction) -> dict[str, str]:
    """How weights and cache are stored, in aiconfigurator's words; NotInTables where it has none."""
    settings, shape, args = prediction.settings, prediction.setup.shape, prediction.setup.args
    device = prediction.setup.machine.device
    assert settings is not None
    cache_mode = _names()["cache"].get(settings.kv_cache_dtype)
    if cache_mode is None or settings.dtype == "float32":
        what = f"a {settings.kv_cache_dtype} KV cache" if cache_mode is None else "float32"
        raise NotInTables(f"no kernels for {what}")
    linear, experts = _schemes(shape, args.quantization)
    found = {"gemm_quant_mode": _mode(linear, "linear layers", device), "kvcache_quant_mode": cache_mode}
    if shape.is_moe:
        found["moe_quant_mode"] = _mode(experts, "experts", device)
    return found


def _schemes(shape: ModelShape, asked: str | None) -> tuple[Scheme | None, Scheme | None]:
    """How linear layers and routed experts are stored, None for plain weights."""
    stored = shape.quantization
    if stored is None:
        if shape.unread_quantization:
            raise NotInTables(f"weights stored as {shape.unread_quantization} are not known")
        online = ONLINE[asked][1] if asked in ONLINE else None
        return online, online
    plain = stored.experts_only or (shape.is_moe and stored.scheme_for(_ATTENTION) is None)
    return None if plain else stored.scheme, stored.experts or stored.scheme


def _mode(scheme: Scheme | None, part: str, device: Device) -> str:
    name = _label(scheme)
    modes = _names()["weights"].get(name, {})
    if part not in modes or (device.compute_capability or (0, 0)) < tuple(modes.get("since", (0, 0))):
        raise NotInTables(f"no kernels for {part} stored as {name} on {device.name}")
    return str(modes[part])


def _label(scheme: Scheme | None) -> str:
    """The name of a way of storing weights in ``data/sizing/tables.json``."""
    if scheme is None:
        return "plain"
    if scheme.format == "fp8":
        static = " static" if scheme.static_input and scheme.grain is Grain.TENSOR else ""
        return f"fp8 {scheme.grain.value}{static}"
    return f"packed {scheme.bits:g}" if scheme.format == "packed" else scheme.format


def _config(prediction: Prediction, offline: bool) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """The model's config as vLLM would read it, without storage that aiconfigurator refuses to read."""
    args, name = prediction.setup.args, prediction.setup.shape.name
    try:
        config, quantization = raw_config(name, offline=offline, revision=args.revision)
    except ModelError as error:
        raise NotInTables(f"the model's config cannot be read again: {error.problem}") from None
    whole = dict(with_class_defaults(merge(config, args.hf_overrides)))
    method = str((whole.get("quantization_config") or {}).get("quant_method", "")).lower()
    if method not in _names()["read_methods"]:
        whole.pop("quantization_config", None)
    return whole, quantization


@cache
def _names() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files("kvroom.data.sizing").joinpath("tables.json").read_text("utf-8"))
    return found


@contextlib.contextmanager
def _asked(folder: str = "", model: str = "") -> Iterator[None]:
    """What is asked inside prints nothing, and fails with NotInTables: one sentence."""
    try:
        with _quiet():
            yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever goes wrong in there (a panic in Rust is no Exception)
        text = sentence(str(error).replace(folder, _FOLDER) if folder else str(error)).replace(_FOLDER, model)
        raise NotInTables(text or type(error).__name__) from None


def sentence(text: str) -> str:
    """The first thing that an error of aiconfigurator says, without the paths of this machine.

    >>> sentence("perf database error: GEMM data missing for 'int4_wo' at /usr/lib/x/0.14.0; available: []")
    "GEMM data missing for 'int4_wo'"
    """
    text = re.sub(r"( at)? ?/[^\s;,]+", "", " ".join(text.split()).removeprefix("perf database error: "))
    return re.split(r"\. |; |: tried ", text)[0].rstrip(".")


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Its log and prints are left out."""
    log = logging.getLogger(_PACKAGE)
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), _unwarned():
            yield
    finally:
        log.setLevel(level)
