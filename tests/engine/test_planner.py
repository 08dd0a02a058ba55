"""kvroom's KV cache planner against vLLM's own functions, on random launches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from kvroom.errors import EngineError
from kvroom.vllm.kv.capacity import capacity_of_stages
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import rules_for
from tests.engine import environment
from tests.engine.client import Planner
from tests.engine.launches import Launch, launches
from tests.engine.server import KEPT_LINES

pytestmark = pytest.mark.engine

EXAMPLES = {environment.NEWEST: 2000}
OTHERS = 1000
RELEASES = os.environ.get("KVROOM_ENGINE_RELEASES", "").split() or [environment.NEWEST, *environment.OLDER]
REFUSALS = {"NotImplementedError", "AssertionError", "TypeError", "ValueError", "ZeroDivisionError"}


@pytest.fixture(scope="module")
def planners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Planner]]:
    """All releases at once, so that their imports overlap."""
    python = environment.python()
    if python is None:
        pytest.skip("no vLLM here: run tests/engine/environment.py first")
    trees = environment.trees()
    logs = tmp_path_factory.mktemp("engine")
    started: dict[str, Planner] = {}
    try:
        for release in RELEASES:
            tree = trees.get(release)
            if tree is None and release != environment.NEWEST:
                continue
            started[release] = Planner(python, tree, Path(logs) / f"{release}.log")
        yield started
    finally:
        for planner in started.values():
            planner.__exit__(None, None, None)


@pytest.mark.parametrize("release", RELEASES)
def test_plans_are_equal(planners: dict[str, Planner], release: str, record_property: Any) -> None:
    """Every random launch gets vLLM's blocks, tokens, groups, lines and error text."""
    if release not in planners:
        pytest.skip(f"vLLM {release} is not unpacked here")
    planner = planners[release]
    rules = rules_for(parse_release(release))
    different: list[str] = []
    families: dict[str, int] = {}

    @seed(int(os.environ.get("KVROOM_ENGINE_SEED", "20")))
    @settings(
        max_examples=int(os.environ.get("KVROOM_ENGINE_EXAMPLES", EXAMPLES.get(release, OTHERS))),
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(launch=launches(rules))
    def compare(launch: Launch) -> None:
        families[launch.family] = families.get(launch.family, 0) + 1
        difference = _difference(launch, planner.ask(launch.question()))
        if difference:
            different.append(f"{difference}\n  {launch.question()}")

    compare()
    asked = sum(families.values())
    record_property("asked", asked)
    record_property("different", len(different))
    print(f"vLLM {release}: {asked} launches asked, {len(different)} differ; {families}")  # noqa: T201
    assert not different, f"{len(different)} of {asked} differ:\n" + "\n".join(different[:5])


def _difference(launch: Launch, answer: dict[str, Any]) -> str:
    """What kvroom says otherwise than vLLM, empty when they agree."""
    refused = answer.get("type") if "error" in answer else None
    try:
        layouts = launch.layouts()
    except EngineError as error:
        return "" if refused in REFUSALS else f"kvroom refuses ({error}), vLLM plans {answer}"
    pool = capacity_of_stages(layouts, launch.available, launch.settings, launch.args.num_gpu_blocks_override)
    if pool.error is not None or refused:
        if pool.error == answer.get("error"):
            return ""
        return f"kvroom: {pool.error}\n  vLLM:   {answer}"
    ours = {
        "num_blocks": pool.num_blocks,
        "max_model_len": pool.max_model_len,
        "block": pool.block_size,
        "groups": [[len(group.layers), group.spec.block_size, group.uniform] for group in layouts[0].groups],
        "stages": launch.question()["stages"],
        "lines": sorted(_kept(pool.notes)),
    }
    theirs = {
        "num_blocks": answer["num_blocks"],
        "max_model_len": answer["max_model_len"],
        "block": answer["block"],
        "groups": [[*group[:2], group[2] == "UniformTypeKVCacheSpecs"] for group in answer["groups"]],
        "stages": answer["stages"],
        "lines": sorted(set(answer["lines"])),
    }
    return "" if ours == theirs else f"kvroom: {ours}\n  vLLM:   {theirs}"


def _kept(lines: tuple[str, ...]) -> set[str]:
    return {line for line in lines if line.startswith(KEPT_LINES)}
