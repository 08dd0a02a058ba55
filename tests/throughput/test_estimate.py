"""Estimates: they follow the card, the model and the load, and repeat what public runs measured within their error."""

from __future__ import annotations

import pytest

from kvroom.devices.catalogue import find_device
from kvroom.errors import DeviceError, UsageError
from kvroom.ledger.predict import Prediction
from kvroom.plans.make import plan
from kvroom.throughput.card import card_of, known
from kvroom.throughput.costs import costs_of
from kvroom.throughput.estimate import Load, Scale, engine_of, estimate, scale_of, steady
from kvroom.throughput.factors import fitted
from kvroom.throughput.measured import Measured, read_measured
from kvroom.throughput.step import computing_seconds, reading_seconds, step_seconds
from kvroom.units import GIB

LOAD = Load(1024, 256)


def _plan(model: str, gpu: str, **flags: object) -> Prediction:
    return plan(model, gpu=gpu, offline=True, learned=False, vllm="0.28.0", **flags).prediction


LLAMA = _plan("meta-llama/Llama-3.1-8B-Instruct", "H100", max_model_len=16384)


def test_costs_of_a_dense_model_by_hand() -> None:
    costs = costs_of(LLAMA)
    # 8.03 billion parameters less the embedding's 128,256 x 4,096, in 16 bits
    assert costs.weights == pytest.approx(2 * (8.03e9 - 128256 * 4096), rel=0.01)
    assert costs.flops == pytest.approx(costs.weights, rel=0.001)
    assert costs.cache == 131072
    assert costs.read(1000) == 131072 * 1000
    assert costs.attention_flops == 4 * 32 * 128 * 32
    half = costs_of(_plan("meta-llama/Llama-3.1-8B-Instruct", "2x H100", tensor_parallel_size=2, max_model_len=16384))
    assert half.weights == pytest.approx(costs.weights / 2, rel=0.01)
    assert half.cache == 65536


def test_costs_of_experts_windows_states_and_quantised_weights() -> None:
    experts = costs_of(_plan("Qwen/Qwen3-30B-A3B", "H100", max_model_len=16384))
    assert experts.expert_share == 8 / 128
    assert experts.experts > 0.9 * 54 * GIB
    active = experts.flops + experts.expert_flops
    assert active == pytest.approx(2 * 3.0e9, rel=0.1)  # "A3B"
    gemma = costs_of(_plan("google/gemma-3-27b-it", "H100", max_model_len=16384))
    assert {window for _, window in gemma.windows} == {1024}
    assert gemma.read(16384) < 16384 * gemma.read(1)
    states = costs_of(_plan("Qwen/Qwen3-Next-80B-A3B-Instruct", "4x H100", tensor_parallel_size=4))
    assert states.state > 0
    fp8 = costs_of(_plan("meta-llama/Llama-3.1-8B-Instruct", "H100", quantization="fp8", max_model_len=16384))
    assert (fp8.bits, fp8.unpacks) == (8, False)
    assert fp8.weights < 0.6 * costs_of(LLAMA).weights
    old = costs_of(_plan("meta-llama/Llama-3.1-8B-Instruct", "A100-80GB", quantization="fp8", max_model_len=16384))
    assert (old.bits, old.unpacks) == (16, True)


def test_a_step_is_never_faster_than_the_card() -> None:
    costs, card, factors = costs_of(LLAMA), card_of(find_device("H100")), fitted().factors
    for decodes, context, chunk in ((1, 1000, 0), (64, 4000, 0), (0, 0, 8192), (32, 2000, 2048)):
        took = step_seconds(costs, card, factors, decodes, context, chunk, chunk / 2)
        assert took > (costs.weights + decodes * costs.read(context)) / card.bandwidth
        assert took > costs.flops * (decodes + chunk) / card.half
    assert step_seconds(costs, card, factors, 0, 0) == 0


def test_decoding_is_read_and_prompts_are_computed() -> None:
    costs, card, factors = costs_of(LLAMA), card_of(find_device("H100")), fitted().factors
    assert reading_seconds(costs, card, factors, 8, 1000, 0, 0) > computing_seconds(costs, card, factors, 8, 1000, 0, 0)
    assert reading_seconds(costs, card, factors, 0, 0, 8192, 4096) < computing_seconds(
        costs, card, factors, 0, 0, 8192, 4096
    )


def test_rows_follow_the_load() -> None:
    found = estimate(LLAMA, LOAD)
    times = [row.tpot for row in found.rows]
    assert times == sorted(times)
    rates = [row.throughput for row in found.rows]
    assert rates == sorted(rates)
    assert found.rows[-1].concurrency <= found.pool_batch
    low, high = found.interval("tpot")
    assert low <= 1 <= high
    assert 5_000 < found.prompt_rate < 60_000


def test_faster_cards_are_faster() -> None:
    rates = []
    for gpu in ("RTX 3090", "RTX 4090", "A100-80GB", "H100", "H200", "B200"):
        prediction = _plan("meta-llama/Llama-3.1-8B-Instruct", gpu, max_model_len=4096)
        rates.append(estimate(prediction, Load(512, 128), (8,)).rows[0].throughput)
    assert rates == sorted(rates)


def test_the_steady_state_is_near_the_run() -> None:
    for model, gpu, flags in (
        ("meta-llama/Llama-3.1-8B-Instruct", "H100", {}),
        ("Qwen/Qwen3-30B-A3B", "H200", {}),
        ("Qwen/Qwen3-32B", "2x L40S", {"tensor_parallel_size": 2, "quantization": "fp8"}),
    ):
        engine = engine_of(_plan(model, gpu, max_model_len=8192, **flags))
        for count in (1, 8, 32):
            run = engine.closed(LOAD, count)
            ttft, tpot, rate = steady(engine, LOAD, count)
            assert tpot == pytest.approx(run.tpot, rel=0.15)
            assert rate == pytest.approx(run.throughput, rel=0.2)
            assert ttft > 0


def test_goodput_falls_with_the_targets() -> None:
    loose = estimate(LLAMA, LOAD, (1,), ttft=2.0, tpot=0.05).goodput
    tight = estimate(LLAMA, LOAD, (1,), ttft=2.0, tpot=0.012).goodput
    never = estimate(LLAMA, LOAD, (1,), tpot=0.001).goodput
    assert loose is not None
    assert tight is not None
    assert loose > tight > 0
    assert never == 0


def test_one_measured_run_scales_all_others() -> None:
    plain = estimate(LLAMA, LOAD, (16,)).rows[0]
    scale = scale_of(LLAMA, LOAD, 16, 1.25 * plain.tpot)
    found = estimate(LLAMA, LOAD, (16,), scale=scale)
    assert found.rows[0].tpot == pytest.approx(1.25 * plain.tpot, rel=0.01)
    wide, narrow = fitted().tpot, found.interval("tpot")
    assert narrow[1] - narrow[0] < wide[1] - wide[0]
    with pytest.raises(UsageError, match="Check the unit"):
        scale_of(LLAMA, LOAD, 16, 12.0)
    assert Scale().measured is False


@pytest.mark.parametrize(
    ("model", "gpu", "flags", "load", "count", "tpot"),
    [
        ("Qwen/Qwen3-8B", "H100", {}, Load(233, 221), 4, 7.38),
        ("meta-llama/Llama-3.1-8B-Instruct", "A100-40GB", {"max_model_len": 8192}, Load(1024, 128), 1, 13.3),
        ("openai/gpt-oss-120b", "H100", {"max_model_len": 32768}, Load(229, 217), 4, 8.31),
        ("Qwen/Qwen3-8B", "MI300X", {}, Load(1024, 1024), 32, 9.42),
    ],
)
def test_public_runs_lie_within_the_interval(
    model: str, gpu: str, flags: dict[str, int], load: Load, count: int, tpot: float
) -> None:
    found = estimate(_plan(model, gpu, **flags), load, (count,))
    low, high = found.interval("tpot")
    assert low * found.rows[0].tpot <= tpot / 1000 <= high * found.rows[0].tpot


def test_what_cannot_be_told() -> None:
    assert not known(find_device("RTX 3050"))
    with pytest.raises(DeviceError, match="no memory bandwidth"):
        card_of(find_device("RTX 3050"))
    with pytest.raises(UsageError, match="serves nothing"):
        engine_of(_plan("Qwen/Qwen3-32B", "RTX 4090"))
    with pytest.raises(UsageError, match="longer than max_model_len"):
        estimate(LLAMA, Load(16000, 1000))


def test_measured_words_and_files(tmp_path: object) -> None:
    found = read_measured("concurrency=16, input=1024,output=128,tpot=12.3ms")
    assert found == Measured(16, 1024, 128, pytest.approx(0.0123))
    from pathlib import Path

    file = Path(str(tmp_path)) / "result.json"
    file.write_text(
        '{"completed": 100, "max_concurrency": 8, "total_input_tokens": 102400, "total_output_tokens": 12800, '
        '"mean_tpot_ms": 9.5, "mean_ttft_ms": 55.0, "request_rate": "inf"}'
    )
    assert read_measured(str(file)) == Measured(8, 1024, 128, pytest.approx(0.0095))
    file.write_text("lines of a log")
    assert read_measured(str(file)) is None
    for text in ("[1]", "{}", '{"completed": 1e9999}'):
        file.write_text(text)
        with pytest.raises(UsageError, match="--measured"):
            read_measured(str(file))
    file.write_text(
        '{"completed": 100, "total_input_tokens": 1, "total_output_tokens": 1, "mean_tpot_ms": 9, "request_rate": 4.0}'
    )
    with pytest.raises(UsageError, match="paced"):
        read_measured(str(file))


@pytest.mark.parametrize(
    "text",
    [
        "concurrency=16",
        "concurrency=16,input=1,output=1,tpot=12",
        "concurrency=x,input=1,output=1,tpot=12ms",
        "speed=1,tpot=1ms",
        "concurrency=0,input=1,output=1,tpot=1ms",
        "missing.json",
    ],
)
def test_what_is_no_measured_run(text: str) -> None:
    with pytest.raises(UsageError, match="--measured"):
        read_measured(text)
