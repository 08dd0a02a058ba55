"""Remedies on real launches: what is offered, what is left out, and that the command starts."""

from __future__ import annotations

import pytest

import kvroom
from kvroom.ledger.verdict import Status
from kvroom.plans.plan import Plan
from kvroom.remedies.limits import round_length


def plan(model: str, gpu: str, **options: object) -> Plan:
    return kvroom.plan(model, gpu=gpu, offline=True, **options)


def flags(plan: Plan) -> list[str]:
    return [remedy.flags[0] for remedy in plan.advice.remedies if remedy.flags]


def reasons(plan: Plan) -> dict[str, str]:
    return {item.name: item.reason for item in plan.advice.impossible}


def again(plan: Plan) -> Plan:
    """The plan of the command that the first one recommends."""
    from kvroom.plans.make import Request, plan_tokens

    setup = plan.prediction.setup
    request = Request(gpu=f"{setup.machine.count}x {setup.machine.device.name}", vllm=str(setup.release), offline=True)
    return plan_tokens(plan.command[2:], {}, request)


LAUNCHES = [
    ("meta-llama/Llama-3.1-8B-Instruct", "RTX 3090", {}),
    ("Qwen/Qwen3-32B", "A100-80GB", {"vllm": "0.11.0"}),
    ("openai/gpt-oss-120b", "H100", {"vllm": "0.11.0", "gpu_memory_utilization": 0.95}),
    ("google/gemma-3-27b-it", "A100-80GB", {"vllm": "0.28.0"}),
    ("Qwen/Qwen3.6-27B", "A100-80GB", {"vllm": "0.28.0"}),
    ("Qwen/Qwen3.5-9B", "RTX 3090", {"vllm": "0.28.0"}),
    ("Qwen/Qwen3-14B", "L40S", {"vllm": "0.26.0", "gpu_memory_utilization": 0.75}),
]


@pytest.mark.parametrize(("model", "gpu", "options"), LAUNCHES, ids=[launch[0] for launch in LAUNCHES])
def test_the_recommended_command_starts(model: str, gpu: str, options: dict) -> None:
    first = plan(model, gpu, **options)
    if first.verdict.status is Status.FITS:
        assert first.advice.remedies == ()
        assert first.command[3:] == tuple(first.tokens[1:])
        return
    assert first.advice.combined, "nothing was recommended"
    assert again(first).verdict.status is first.advice.after.verdict.status
    assert first.advice.after.verdict.status in {Status.FITS, Status.TIGHT}


def test_every_remedy_offered_improves_the_verdict_and_states_its_price() -> None:
    seen = plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 3090")
    assert flags(seen)[0] == "--max-model-len"
    for remedy in seen.advice.remedies:
        assert remedy.after.verdict.status is not Status.FAILS
        assert remedy.price
        assert remedy.why


def test_a_change_is_offered_once() -> None:
    seen = plan("meta-llama/Llama-3.3-70B-Instruct", "4x H100")
    assert flags(seen).count("--tensor-parallel-size") == 1


def test_four_bits_come_with_the_length_they_leave() -> None:
    seen = plan("Qwen/Qwen3-32B", "RTX 4090", vllm="0.28.0")
    assert any("4-bit checkpoint and --max-model-len" in remedy.name for remedy in seen.advice.remedies)


def test_a_fitting_launch_gets_no_remedies() -> None:
    seen = plan("Qwen/Qwen3-0.6B", "A100-80GB", max_model_len=4096)
    assert seen.advice.remedies == ()
    assert seen.command == ("vllm", "serve", "Qwen/Qwen3-0.6B", "--max-model-len", "4096")


def test_utilisation_is_never_the_cure_for_weights_that_do_not_fit() -> None:
    seen = plan("meta-llama/Llama-3.1-70B-Instruct", "RTX 4090")
    assert "--gpu-memory-utilization" not in flags(seen)
    assert "weights themselves do not fit" in reasons(seen)["--gpu-memory-utilization"]


def test_utilisation_stays_below_what_is_free() -> None:
    seen = plan(
        "Qwen/Qwen3-8B",
        "RTX 4090",
        vllm="0.28.0",
        free_memory="20.8GiB",
        max_model_len=40960,
        gpu_memory_utilization=0.85,
    )
    for remedy in seen.advice.offers:
        if remedy.flags and remedy.flags[0] == "--gpu-memory-utilization":
            assert float(remedy.flags[1]) * 23.65 <= 20.8
    assert seen.verdict.status is not Status.FITS


def test_a_card_in_use_gets_a_smaller_share() -> None:
    seen = plan("Qwen/Qwen3-0.6B", "RTX 4090", vllm="0.28.0", free_memory="12GiB", max_model_len=4096)
    remedy = seen.advice.remedies[0]
    assert remedy.flags == ("--gpu-memory-utilization", "0.5")
    assert remedy.after.verdict.status is Status.FITS


def test_a_card_in_use_may_get_a_cache_of_said_bytes() -> None:
    seen = plan("Qwen/Qwen3-0.6B", "RTX 4090", vllm="0.28.0", free_memory="12GiB", max_model_len=4096)
    remedy = next(each for each in seen.advice.remedies if each.flags[:1] == ("--kv-cache-memory-bytes",))
    assert remedy.after.verdict.status is Status.FITS
    assert remedy.after.ledger.available.low == int(remedy.flags[1])
    old = plan("Qwen/Qwen3-0.6B", "RTX 4090", vllm="0.10.0", free_memory="12GiB", max_model_len=4096)
    assert "--kv-cache-memory-bytes" not in flags(old)


def test_max_num_seqs_is_blamed_where_the_sampler_takes_the_room() -> None:
    seen = plan("openai/gpt-oss-120b", "H100", vllm="0.11.0", gpu_memory_utilization=0.95)
    assert flags(seen)[0] == "--max-num-seqs"
    assert seen.verdict.left_out is not None
    assert "The setting to blame is --max-num-seqs (1,024)" in seen.verdict.left_out


def test_enforce_eager_is_no_remedy_where_graphs_are_outside_the_budget() -> None:
    old = plan("Qwen/Qwen3-32B", "A100-80GB", vllm="0.16.0", max_model_len=40960)
    assert "--enforce-eager" not in flags(old)
    assert "frees nothing" in reasons(old)["--enforce-eager"]


def test_fp8_kv_is_left_out_with_vllms_reason_where_the_card_cannot() -> None:
    seen = plan("meta-llama/Llama-2-13b-hf", "T4", vllm="0.28.0", dtype="half")
    assert "--kv-cache-dtype" not in flags(seen)


def test_a_backend_workspace_is_blamed_and_the_other_backend_comes_first() -> None:
    from tests.ledger.test_predict import HYBRID

    seen = plan("Qwen/Qwen3.6-27B", "2x RTX 5060 Ti 16GB", attention_backend="FLASHINFER", **HYBRID)
    assert seen.advice.remedies[0].flags == ("--attention-backend", "FLASH_ATTN")
    assert seen.verdict.left_out is not None
    assert "FLASHINFER" in seen.verdict.left_out
    assert "workspace" in seen.verdict.left_out
    assert "--attention-backend FLASH_ATTN" in " ".join(seen.command)


def test_heads_that_do_not_divide_get_a_size_that_does() -> None:
    seen = plan("Qwen/Qwen3-8B", "3x RTX 4090", tensor_parallel_size=3, max_model_len=8192)
    assert seen.verdict.stage == "config"
    assert seen.advice.remedies[0].flags == ("--tensor-parallel-size", "2")


def test_a_length_beyond_the_model_gets_the_models_own() -> None:
    seen = plan("Qwen/Qwen3-0.6B", "A100-80GB", max_model_len=100_000)
    assert seen.advice.remedies[0].flags == ("--max-model-len", "40960")


@pytest.mark.parametrize(
    ("tokens", "rounded"),
    [(100_352, 98_304), (47_440, 45_056), (20_000, 16_384), (5_000, 4_096), (700, 512), (90, 90)],
)
def test_lengths_are_rounded_down_to_what_people_write(tokens: int, rounded: int) -> None:
    assert round_length(tokens) == rounded
