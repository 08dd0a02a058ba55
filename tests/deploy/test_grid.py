"""What is written passes ``kvroom check`` with the same verdict and the same pool, over models, cards and needs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

import kvroom
from kvroom.deploy import KINDS, emit
from kvroom.errors import KvroomError, UsageError
from kvroom.launches.files import found_in
from kvroom.plans.check import check_found, check_text
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request

MODELS = {
    "Qwen/Qwen3-0.6B": 1,
    "Qwen/Qwen3-8B": 1,
    "Qwen/Qwen3-32B-FP8": 2,
    "Qwen/Qwen3-235B-A22B-FP8": 8,
    "Qwen/Qwen2.5-VL-7B-Instruct": 1,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 4,
    "meta-llama/Llama-3.1-8B-Instruct": 1,
    "meta-llama/Llama-3.3-70B-Instruct": 4,
    "google/gemma-3-27b-it": 2,
    "openai/gpt-oss-20b": 1,
    "deepseek-ai/DeepSeek-V2-Lite": 1,
    "deepseek-ai/DeepSeek-R1": 8,
    "BAAI/bge-large-en": 1,
}
CARDS = ("L4", "RTX 3090", "RTX 4090", "L40S", "A100-80GB", "H100", "H200", "B200")
NEEDS = ({}, {"max_model_len": 16384}, {"max_model_len": 32768, "kv_cache_dtype": "fp8", "max_num_seqs": 64})
RELEASES = ("0.9.2", "0.28.0", "0.33.0")


def _plans() -> Iterator[Plan]:
    for number, ((model, gpus), card, need) in enumerate(product(MODELS.items(), CARDS, NEEDS)):
        release = RELEASES[number % len(RELEASES)]
        flags = {**need, **({"tensor_parallel_size": gpus} if gpus > 1 else {})}
        try:
            yield kvroom.plan(model, gpu=card, vllm=release, offline=True, learned=False, **flags)
        except KvroomError:  # a model that the release does not know
            continue


def _checked(text: str, kind: str, plan: Plan) -> Plan:
    """The one plan that ``check`` makes of a deployment."""
    setup = plan.prediction.setup
    card = setup.machine.device.name
    if kind in {"command", "docker"}:
        release = str(setup.release) if kind == "command" else None
        (item,) = check_text(text, {}, Request(gpu=card, vllm=release, offline=True))
        return item
    (item,) = check_found(found_in(text, f"{kind}.yaml"), {}, Request(offline=True))
    assert isinstance(item, Plan), item
    return item


def test_what_is_written_passes_the_check_with_the_same_verdict_and_pool() -> None:
    written = refused = 0
    for plan in _plans():
        after = plan.advice.after or plan.prediction
        kinds = ("k8s",) if written % 3 else ("k8s", KINDS[written // 3 % 3])
        try:
            texts = {kind: emit(plan, kind) for kind in kinds}
        except UsageError:
            texts = {}
        assert bool(texts) == (after.verdict.status in {"fits", "tight"}), plan.tokens
        refused += not texts
        written += bool(texts)
        for kind, text in texts.items():
            again = _checked(text, kind, plan)
            where = (plan.tokens, kind, text)
            assert again.verdict.status == after.verdict.status, where
            assert again.prediction.pool == after.pool, where
            assert again.prediction.setup.machine.device.id == after.setup.machine.device.id, where
            assert not [each for each in again.findings if each.code.startswith("KVR18")], where
    assert written >= 200
    assert refused > 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_changed_to_make_it_start_is_said(kind: str) -> None:
    plan = kvroom.plan("meta-llama/Llama-3.1-8B-Instruct", gpu="RTX 3090", vllm="0.28.0", offline=True, learned=False)
    text = emit(plan, kind)
    assert plan.verdict.status == "fails"
    assert "# As it was given it does not fit: changed --max-model-len." in text
    assert _checked(text, kind, plan).verdict.status == "fits"
