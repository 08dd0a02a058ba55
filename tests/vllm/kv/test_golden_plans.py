"""KV plans, from the config to the error text, held against what vLLM's own planner answered."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvroom.devices.device import Device, Machine
from kvroom.models.catalogue import find
from kvroom.models.config import read_config
from kvroom.models.shape import ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.backends import choose_backend
from kvroom.vllm.defaults import resolve
from kvroom.vllm.kv.capacity import capacity
from kvroom.vllm.kv.layout import KvLayout, layout_of
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import rules_for
from kvroom.vllm.settings import Settings

DATA = Path(__file__).parents[2] / "data" / "kv"
GOLDEN = json.loads((DATA / "plans.json").read_text("utf-8"))
for more in ("compressed.json", "releases.json"):
    golden = json.loads((DATA / more).read_text("utf-8"))
    GOLDEN["cases"] += golden["cases"]
    GOLDEN["configs"] |= golden["configs"]
ABSENT = frozenset({"flashinfer", "flashmla", "fa4"})


@cache
def packaged(name: str, with_second_file: bool) -> ModelShape:
    entry = find(name)
    assert entry is not None
    return read_config(entry.config, name=name, hf_quant_config=entry.hf_quant_config if with_second_file else None)


def shape_of(case: dict[str, Any]) -> ModelShape:
    if "model" in case:
        return packaged(case["model"], bool(case.get("hf")))
    return read_config(GOLDEN["configs"][case["config"]], name=case["id"])


def planned(case: dict[str, Any]) -> tuple[KvLayout, Settings, EngineArgs]:
    shape = shape_of(case)
    args = EngineArgs(model="m", enforce_eager=True, distributed_executor_backend="mp", **case["args"])
    name, capability, gib = case["gpu"]
    total = int(gib * 2**30)
    device = Device(name, "NVIDIA", tuple(map(int, capability.split("."))), total, total, total, "measured")
    machine = Machine(device, args.tensor_parallel_size * args.pipeline_parallel_size)
    settings = resolve(args, shape, machine, rules_for(parse_release(case["release"])))
    backend = choose_backend(shape, args, settings, device, without=ABSENT)
    layout = layout_of(
        shape,
        args,
        settings,
        backend.name,
        backend.block_size,
        stage=case.get("rank", 0),
        capability=device.compute_capability,
    )
    return layout, settings, args


def differences(layout: KvLayout, settings: Settings, args: EngineArgs, plan: dict[str, Any]) -> dict[str, Any]:
    """What is not as vLLM answered, as (ours, vLLM's)."""
    pool = capacity(layout, plan["available"], settings, args.num_gpu_blocks_override)
    ours: dict[str, Any] = {"error": pool.error, "bpb": layout.bytes_per_block}
    if args.max_model_len != -1:
        ours |= {"need": pool.needed_bytes, "estimate": pool.estimated_length}
    if plan["ok"]:
        ours |= {
            "blocks": pool.num_blocks,
            "tokens": pool.tokens,
            "concurrency": pytest.approx(pool.max_concurrency, rel=1e-12),
            "length": pool.max_model_len,
        }
    theirs = {"error": None, **plan}
    return {key: (value, theirs[key]) for key, value in ours.items() if key in theirs and value != theirs[key]}


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["id"])
def test_the_plan_equals_vllms(case: dict[str, Any]) -> None:
    layout, settings, args = planned(case)
    found = [differences(layout, settings, args, plan) for plan in case["plans"]]
    if "differs" in case:
        assert any(found), "no longer an exception"
    else:
        assert not any(found)


@pytest.mark.parametrize(
    "case", [case for case in GOLDEN["cases"] if "differs" not in case], ids=lambda case: case["id"]
)
def test_groups_are_vllms(case: dict[str, Any]) -> None:
    layout, _, _ = planned(case)
    for plan in case["plans"]:
        if plan.get("groups"):
            # A uniform group's page is all its layers' pages together.
            theirs = [
                (layers, page // layers if kind.startswith("Uniform") else page)
                for layers, kind, page, _ in plan["groups"]
            ]
            ours = [(len(group.layers), group.block_bytes // len(group.layers)) for group in layout.groups]
            assert ours == theirs


def test_enough_releases_are_held() -> None:
    assert len({case["release"] for case in GOLDEN["cases"]}) >= 11
    assert sum(len(case["plans"]) for case in GOLDEN["cases"]) > 1000
