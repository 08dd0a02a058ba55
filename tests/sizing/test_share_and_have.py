"""Several models on one card, and what runs on cards that are there."""

from __future__ import annotations

from itertools import permutations

import pytest

from kvroom.devices.catalogue import find_device
from kvroom.devices.device import Machine
from kvroom.errors import UsageError
from kvroom.ledger.verdict import Status
from kvroom.plans.make import plan
from kvroom.plans.request import Request
from kvroom.sizing.have import fits
from kvroom.sizing.share import held, lacking, read_tenant, share
from kvroom.vllm.releases import parse_release

OFFLINE = Request(offline=True, vllm="0.28.0")
THREE = ("Qwen/Qwen3-8B@16k:4", "meta-llama/Llama-3.1-8B-Instruct@32k:2", "Qwen/Qwen3-0.6B@8k")


def test_three_models_start_in_any_order() -> None:
    card = find_device("H100-SXM")
    sharing = share([read_tenant(text) for text in THREE], card, OFFLINE, {})
    assert sharing.fits
    for order in permutations(sharing.instances):
        free = card.total_low
        for instance in order:
            # vLLM's own check: the share that is asked for must be free at the start
            assert free >= instance.utilization * card.total_bytes
            free -= instance.footprint_bytes
        assert free == sharing.spare_bytes >= 0


def test_each_holds_its_requests_and_its_command_fits() -> None:
    sharing = share([read_tenant(text) for text in THREE], find_device("H100-SXM"), OFFLINE, {})
    for instance in sharing.instances:
        assert held(instance) >= instance.tenant.concurrency
        words = dict(zip(instance.tokens[1::2], instance.tokens[2::2], strict=True))
        flags = {name.removeprefix("--").replace("-", "_"): value for name, value in words.items()}
        planned = plan(instance.tokens[0], gpu="H100-SXM", vllm="0.28.0", offline=True, learned=False, **flags)
        assert planned.verdict.status is Status.FITS
        assert planned.prediction.ledger is not None
        assert planned.prediction.ledger.available.expected == instance.cache_bytes


def test_a_card_that_is_too_small_says_by_how_much() -> None:
    sharing = share([read_tenant(text) for text in THREE], find_device("RTX 4090"), OFFLINE, {})
    assert not sharing.fits
    assert "GiB too small" in lacking(sharing)
    assert sharing.spare_bytes < 0


@pytest.mark.parametrize("text", ["Qwen/Qwen3-8B", "@16k", "Qwen/Qwen3-8B@", "Qwen/Qwen3-8B@16k:0", "--x@16k"])
def test_what_is_no_tenant(text: str) -> None:
    with pytest.raises(UsageError, match="--with"):
        read_tenant(text)


def test_what_runs_on_cards_that_are_there() -> None:
    machine, release = Machine(find_device("RTX 3090"), 2), parse_release("0.28.0")
    models = (
        "Qwen/Qwen3-8B",
        "Qwen/Qwen3-32B",
        "meta-llama/Llama-3.1-405B",
        "openai-community/gpt2",
    )
    found = fits(machine, release, models=models, concurrency=2, context=8192)
    assert [fit.model for fit in found] == ["Qwen/Qwen3-32B", "Qwen/Qwen3-8B"]
    assert found[0].weights == "w4a16"
    for fit in found:
        flags = {"max_model_len": fit.context, "max_num_seqs": -(-2 // fit.layout.dp)}
        sizes = {"tensor_parallel_size": fit.layout.tp, "pipeline_parallel_size": fit.layout.pp}
        planned = plan(
            fit.model,
            gpu="2x RTX 3090",
            vllm="0.28.0",
            offline=True,
            learned=False,
            data_parallel_size=fit.layout.dp,
            assume_quantization=None if fit.weights == "as it is" else fit.weights,
            **flags,
            **sizes,
        )
        assert planned.verdict.status is Status.FITS
        assert planned.prediction.pool_low is not None
        assert planned.prediction.pool_low.max_concurrency * fit.layout.dp >= 2
