"""Equality with vLLM's own selection, question by question; see ``_about`` of the data files."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.vllm.backends.launch import choose, model

from kvroom.models.shape import StateCache
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.backends.choose import candidates_of
from kvroom.vllm.backends.order import preferred_block
from kvroom.vllm.backends.question import Layer, Question
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import rules_for

DATA = Path(__file__).parents[2] / "data/vllm"
ENGINE = json.loads((DATA / "backends-engine.json").read_text("utf-8"))
MODELS = json.loads((DATA / "backends-models.json").read_text("utf-8"))["rows"]
STATES = ("MAMBA1_ATTN", "MAMBA2_ATTN", "GDN_ATTN", "SHORT_CONV_ATTN", "LINEAR_ATTN")


def question(given: dict[str, Any], capability: str) -> Question:
    head, major_minor = given["head"], capability.split(".")
    layer = Layer(
        head,
        head,
        given.get("mla", False),
        given.get("sparse", False),
        given.get("sink", False),
        given.get("sliding", False),
        given.get("attn", "decoder"),
    )
    return Question(
        layer=layer,
        capability=(int(major_minor[0]), int(major_minor[1])),
        dtype=given.get("dtype", "bfloat16"),
        kv_cache_dtype=given.get("kv", "auto"),
        block_size=given.get("block"),
        mm_prefix=given.get("mm", False),
        batch_invariant=False,
        dcp=False,
        heads=given.get("heads", 32),
        nope=given.get("nope", 1),
        rope=0 if head == 512 else 64,
        without=frozenset(),
        flash_attn_version=given.get("fa"),
    )


@pytest.mark.parametrize("where", ENGINE["answers"])
def test_valid_backends_and_reasons_are_vllms(where: str) -> None:
    release, capability = where.split()
    rules = rules_for(parse_release(release))
    names, reasons, compared = ENGINE["names"], ENGINE["reasons"], 0
    for given, index in zip(ENGINE["questions"], map(int, ENGINE["answers"][where].split()), strict=True):
        if index < 0:
            continue
        valid, rejected, block = ENGINE["outcomes"][index]
        ask = question(given, capability)
        ours, ours_rejected = candidates_of(rules, ask)
        assert list(ours) == [names[each] for each in valid], given
        assert ours_rejected == {names[name]: reasons[reason] for name, reason in rejected}, given
        if block is not None:
            assert preferred_block(rules, ours[0], ask) == block, given
        compared += 1
    assert compared > 400


@pytest.mark.parametrize("row", MODELS, ids=lambda row: f"{row['model']}-{row['vllm']}-{row['capability']}")
def test_models_get_the_backends_that_vllm_built(row: dict[str, Any]) -> None:
    choice = choose(
        row["model"],
        row["capability"],
        row["vllm"],
        args=EngineArgs(
            attention_backend=row.get("asked"),
            block_size=row.get("asked_block_size"),
            tensor_parallel_size=row["tp"],
        ),
        without=frozenset({"flashinfer", "flashmla", "fa4"}),
        dtype=row["dtype"],
        kv_cache_dtype=row["kv"],
    )
    assert choice.error is None
    built = [name for name in row["backends"] if name not in STATES] or row["backends"]
    assert choice.name in built
    assert set(choice.others) <= set(built)
    if not any(isinstance(layer.cache, StateCache) for layer in model(row["model"]).caches):
        assert choice.block_size == row["block_size"]
