"""Held against what public launches printed as "Model loading took X GiB"."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from kvroom.models.catalogue import find
from kvroom.models.config import read_config
from kvroom.models.quantization import assume_quantization
from kvroom.units import GIB, MIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import rules_for
from kvroom.vllm.weights.loaded import LoadedWeights, loaded_weights

from .conftest import gpu, read_data

LAUNCHES = read_data("logged.json")["launches"]


def predicted(row: dict[str, Any]) -> LoadedWeights:
    entry = find(row["model"])
    assert entry is not None
    config = dict(entry.config)
    for field, value in row.get("changes", {}).items():
        config[field] = {**config[field], **value} if isinstance(config.get(field), dict) else value
    shape = read_config(config, name=row["model"], hf_quant_config=entry.hf_quant_config)
    if "assume" in row:
        shape = replace(shape, quantization=assume_quantization(row["assume"]))
    capability = tuple(row["capability"]) if row["capability"] else None
    device = gpu(capability, row["vendor"], row["memory_gib"] * GIB)
    return loaded_weights(shape, EngineArgs(**row["args"]), rules_for(parse_release(row["release"])), device)


@pytest.mark.parametrize("row", LAUNCHES, ids=lambda row: row["source"][:60])
def test_a_public_launch_lies_near_the_interval(row: dict[str, Any]) -> None:
    weights, logged = predicted(row), row["logged_gib"] * GIB
    assert weights.low <= weights.expected <= weights.high
    below, above = weights.expected - weights.low, weights.high - weights.expected
    assert weights.expected - 2.5 * below - 10 * MIB <= logged <= weights.expected + 2.5 * above + 10 * MIB


def test_nine_of_ten_public_launches_lie_within_the_interval() -> None:
    inside = 0
    for row in LAUNCHES:
        weights, logged = predicted(row), row["logged_gib"] * GIB
        inside += weights.low - 10 * MIB <= logged <= weights.high + 10 * MIB
    assert inside >= 0.9 * len(LAUNCHES)


def test_half_of_the_launches_are_met_within_a_thousandth() -> None:
    errors = [abs(predicted(row).expected / GIB / row["logged_gib"] - 1) for row in LAUNCHES]
    assert len(errors) >= 50
    assert median(errors) < 0.0005
    assert sorted(errors)[int(len(errors) * 0.9)] < 0.01
