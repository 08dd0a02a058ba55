from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvroom.devices.device import Device
from kvroom.models.catalogue import find
from kvroom.models.config import read_config
from kvroom.models.shape import ModelShape
from kvroom.units import GIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import rules_for
from kvroom.vllm.weights.loaded import LoadedWeights, loaded_weights

DATA = Path(__file__).parents[2] / "data" / "weights"


@cache
def read_data(name: str) -> Any:
    return json.loads((DATA / name).read_text("utf-8"))


@cache
def catalogue_shape(name: str) -> ModelShape:
    entry = find(name)
    assert entry is not None
    return read_config(entry.config, name=name, hf_quant_config=entry.hf_quant_config)


def gpu(capability: tuple[int, int] | None = (9, 0), vendor: str = "NVIDIA", total: int = 80 * GIB) -> Device:
    return Device("GPU", vendor, capability, total, total, total, "measured")


Load = Callable[..., LoadedWeights]


@pytest.fixture
def load() -> Load:
    """What one launch of a catalogue model (or of a shape) loads, on an H100 unless said otherwise."""

    def ask(
        model: str | ModelShape,
        *,
        release: str = "0.32.0",
        device: Device | None = None,
        stage: int = 0,
        draft: ModelShape | None = None,
        **args: Any,
    ) -> LoadedWeights:
        shape = catalogue_shape(model) if isinstance(model, str) else model
        rules = rules_for(parse_release(release))
        return loaded_weights(shape, EngineArgs(**args), rules, device or gpu(), stage=stage, draft=draft)

    return ask
