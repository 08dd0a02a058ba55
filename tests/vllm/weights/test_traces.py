"""Held against vLLM itself: its model classes, built without a GPU, say what they allocate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvroom.models.config import read_config
from kvroom.models.shape import ModelShape
from kvroom.models.weights.tensor import Part
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import rules_for
from kvroom.vllm.weights.launch import assigned, cut_of, launch_of, padded
from kvroom.vllm.weights.stage import stage_bytes

from .conftest import catalogue_shape, gpu, read_data

TRACES = read_data("traces.json")["traces"]
BUFFERS_DIFFER = {
    "qwen3.5-35b-a3b_tp1": "a shortened config that an earlier form of the rotary table read",
    "tiiuae--Falcon-H1-0.5B-Base__tp1": "the multipliers of its input projection",
    "upstage--Solar-Open-100B__tp1": "the routers' score biases, buffers of the Transformers backend",
    "nvidia--MiniMax-M3-NVFP4__tp4": "the tower's table of frequencies",
}
SLACK = 8192
"""Bytes of small buffers that are not listed (scalars, frequencies)."""


def shape_of(trace: dict[str, Any]) -> ModelShape:
    if "model" in trace:
        return catalogue_shape(trace["model"])
    return read_config(read_data("traces.json")["configs"][trace["config"]], name=trace["id"])


def created(trace: dict[str, Any]) -> dict[Part, int]:
    """Bytes by part as vLLM creates them, before kernels repack anything."""
    args = EngineArgs(
        tensor_parallel_size=trace["tp"],
        pipeline_parallel_size=trace["pp"],
        quantization=trace.get("quantization"),
    )
    rules = rules_for(parse_release(trace["release"]))
    launch = launch_of(shape_of(trace), args, rules, gpu(), trace["stage"], None)
    main, _, quantization = assigned(launch)
    cut = replace(cut_of(launch, quantization), created=True)
    if quantization is not None and quantization.method == "mxfp4":  # traced without Triton's kernels
        cut = padded(cut, rules["mxfp4_padding"]["marlin"])
    return stage_bytes(launch, main, cut)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace["id"])
def test_parameters_and_buffers_equal_vllm_to_the_byte(trace: dict[str, Any]) -> None:
    parts = created(trace)
    buffers, absorbed = parts.pop(Part.BUFFERS, 0), parts.pop(Part.ABSORBED, 0)
    total = sum(parts.values())
    if "differs" in trace:
        assert total != trace["param_bytes"], "no longer an exception"
        return
    assert total == trace["param_bytes"]
    if trace["id"] not in BUFFERS_DIFFER:
        assert abs(buffers - trace["buffer_bytes"]) <= SLACK
    if absorbed:
        assert total + absorbed == trace["after_bytes"]


def test_the_traces_are_many_and_nearly_all_count() -> None:
    exact = [trace for trace in TRACES if "differs" not in trace]
    assert len(TRACES) == 204
    assert len(exact) == 197
    assert all(trace["differs"] for trace in TRACES if "differs" in trace)
