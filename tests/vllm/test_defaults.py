"""Settings against what vLLM's own configuration code resolved, release by release."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvroom.devices.device import Device, Machine
from kvroom.models import catalogue
from kvroom.models.config import read_config
from kvroom.models.shape import ModelShape
from kvroom.units import GIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.defaults import StartRefused, resolve
from kvroom.vllm.releases import parse_release
from kvroom.vllm.rules import rules_for
from kvroom.vllm.settings import Settings

DATA = Path(__file__).parents[1] / "data" / "vllm"
GOLDEN: dict[str, Any] = json.loads((DATA / "settings.json").read_text("utf-8"))
MODELS: dict[str, Any] = json.loads((DATA / "settings-models.json").read_text("utf-8"))
QWEN = "Qwen/Qwen3-8B"


def device(card: str = "h100", **changes: Any) -> Device:
    name, capability, total = GOLDEN["gpus"][card]
    n_bytes = int(total * GIB)
    fields: dict[str, Any] = {
        "name": name,
        "vendor": "NVIDIA",
        "compute_capability": tuple(capability),
        "total_bytes": n_bytes,
        "total_low": n_bytes,
        "total_high": n_bytes,
        "basis": "published",
    }
    return Device(**{**fields, **changes})


@cache
def shape(model: str, overrides: str = "{}") -> ModelShape:
    entry = catalogue.find(model)
    assert entry is not None
    return read_config(entry.config, name=model, hf_quant_config=entry.hf_quant_config, overrides=json.loads(overrides))


def engine_args(asked: dict[str, Any], env: dict[str, str] | None = None) -> tuple[EngineArgs, str]:
    """EngineArgs and the config overrides of a golden case, as the parser would make them."""
    fields: dict[str, Any] = dict(asked)
    overrides = json.dumps(fields.pop("hf_overrides", {}))
    fields.pop("convert", None)
    config = fields.pop("compilation_config", {})
    given: dict[str, Any] = {}
    if "cudagraph_mode" in config:
        fields["cudagraph_mode"] = config["cudagraph_mode"]
    if "mode" in config:
        fields["compilation_mode"] = config["mode"]
    if "optimization_level" in fields:
        level = fields.pop("optimization_level")
        given["optimization_level"] = str(level)
        fields["compilation_mode"] = 0 if level == 0 else 3
    if "cudagraph_capture_sizes" in fields:
        fields["cudagraph_capture_sizes"] = tuple(fields["cudagraph_capture_sizes"])
    args = EngineArgs(model="m", env=env or {}, given=given, distributed_executor_backend="mp", **fields)
    return args, overrides


def settings(
    release: str,
    asked: dict[str, Any] | None = None,
    model: str = QWEN,
    *,
    card: str = "h100",
    env: dict[str, str] | None = None,
    usage: str = "server",
) -> Settings:
    args, overrides = engine_args(asked or {}, env)
    rules = rules_for(parse_release(release))
    return resolve(args, shape(model, overrides), Machine(device(card), 64), rules, usage=usage)


def shown(got: Settings, has_state: bool) -> dict[str, Any]:
    sizes = got.capture_sizes
    return {
        "dtype": got.dtype,
        "length": got.max_model_len,
        "tokens": got.max_num_batched_tokens,
        "seqs": got.max_num_seqs,
        "chunked": got.enable_chunked_prefill,
        "prefix": got.enable_prefix_caching,
        "kv": got.kv_cache_dtype,
        "hybrid": got.hybrid_manager,
        "share": got.gpu_memory_utilization,
        "mode": got.cudagraph_mode,
        "sizes": [len(sizes), sizes[-1] if sizes else 0, sum(sizes)],
        "ahead": got.async_scheduling,
        "states": got.mamba_cache_mode if has_state else "none",
        "runner": got.model_runner,
        "batches": got.max_concurrent_batches,
    }


@pytest.mark.parametrize("release", GOLDEN["releases"])
def test_settings_equal_vllms_own(release: str) -> None:
    table = GOLDEN["releases"][release]
    wrong = []
    for number, differences in table["rows"].items():
        model, card, asked, env = GOLDEN["cases"][int(number)]
        args, overrides = engine_args(asked, env)
        made = shape(model, overrides)
        expected = {k: v for k, v in {**table["base"], **differences}.items() if v is not None}
        try:
            got = shown(
                resolve(args, made, Machine(device(card), 64), rules_for(parse_release(release))),
                made.has_state,
            )
        except StartRefused as refusal:
            got = {"refused": refusal.message[:400]}
        if "refused" in differences:
            expected = differences
        elif not made.has_state:
            expected.pop("states", None)
        got = {key: got.get(key) for key in expected}
        if got != expected:
            wrong.append(
                (
                    model,
                    card,
                    asked,
                    env,
                    {k: (expected[k], got[k]) for k in expected if got[k] != expected[k]},
                )
            )
    assert not wrong


def test_enough_releases_and_cases_are_held() -> None:
    assert len(GOLDEN["releases"]) >= 12
    assert sum(len(table["rows"]) for table in GOLDEN["releases"].values()) > 1000


# In this catalogue entry the quantisation is ModelOpt's without naming its method, which vLLM takes for none.
UNNAMED = "Qwen/Qwen3-32B-FP8-Static-PerTensor"


@pytest.mark.parametrize("model", [name for name in MODELS if not name.startswith("_") and name != UNNAMED])
def test_every_catalogue_model_as_0_32_resolves_it(model: str) -> None:
    tp, dtype, length, tokens, chunked, prefix, kv = MODELS[model]
    got = settings("0.32.0", {"tensor_parallel_size": tp}, model)
    assert (got.dtype, got.max_model_len, got.max_num_batched_tokens) == (dtype, length, tokens)
    assert (got.enable_chunked_prefill, got.enable_prefix_caching, got.kv_cache_dtype) == (
        chunked,
        prefix,
        kv,
    )


@pytest.mark.parametrize(
    ("release", "card", "usage", "tokens", "seqs"),
    [
        ("0.8.5", "a100", "server", 8192, 1024),
        ("0.9.2", "a100", "server", 2048, 256),
        ("0.9.2", "h100", "llm", 16384, 1024),
        ("0.9.2", "4090", "llm", 8192, 256),
        ("0.27.1", "b200", "server", 8192, 1024),
        ("0.28.0", "b200", "server", 16384, 1024),
        ("0.32.0", "gb10", "server", 8192, 1024),
        ("0.33.0", "gb10", "server", 2048, 256),
    ],
)
def test_batch_defaults_by_device_and_release(release: str, card: str, usage: str, tokens: int, seqs: int) -> None:
    got = settings(release, card=card, usage=usage)
    assert (got.max_num_batched_tokens, got.max_num_seqs) == (tokens, seqs)


def test_the_v0_engine_of_old_releases() -> None:
    got = settings("0.6.6", model="meta-llama/Llama-3.1-8B-Instruct")
    assert (got.engine, got.enable_prefix_caching, got.mamba_cache_mode) == ("V0", False, "none")
    assert (got.enable_chunked_prefill, got.max_num_batched_tokens, got.max_num_seqs) == (True, 2048, 256)
    assert (len(got.capture_sizes), got.capture_sizes[-1], got.hybrid_manager) == (35, 256, False)
    short = settings("0.6.6", {"max_model_len": 8192}, "meta-llama/Llama-3.1-8B-Instruct")
    assert (short.enable_chunked_prefill, short.max_num_batched_tokens) == (False, 8192)


@pytest.mark.parametrize(
    ("release", "asked", "card", "env", "engine"),
    [
        ("0.7.3", {}, "h100", {}, "V0"),
        ("0.8.5", {}, "h100", {}, "V1"),
        ("0.8.5", {}, "h100", {"VLLM_USE_V1": "0"}, "V0"),
        ("0.8.5", {"dtype": "half"}, "t4", {}, "V0"),
        ("0.10.2", {"dtype": "half"}, "t4", {}, "V1"),
        ("0.9.2", {"kv_cache_dtype": "fp8"}, "4090", {}, "V0"),
        ("0.9.2", {"kv_cache_dtype": "fp8"}, "h100", {}, "V1"),
        ("0.8.5", {"tensor_parallel_size": 2}, "h100", {}, "V1"),
        ("0.11.0", {}, "h100", {"VLLM_USE_V1": "0"}, "V1"),
    ],
)
def test_which_engine_runs(release: str, asked: dict[str, Any], card: str, env: dict[str, str], engine: str) -> None:
    assert settings(release, asked, card=card, env=env).engine == engine


@pytest.mark.parametrize(
    ("seqs", "release", "count"),
    [
        (256, "0.9.2", 67), (256, "0.10.2", 67), (256, "0.11.2", 51), (128, "0.13.0", 35), (64, "0.19.1", 19),
        (16, "0.28.0", 7), (1, "0.28.0", 2), (256, "0.33.0", 51),
    ],
)  # fmt: skip
def test_how_many_graphs(seqs: int, release: str, count: int) -> None:
    assert len(settings(release, {"max_num_seqs": seqs}).capture_sizes) == count


@pytest.mark.parametrize("release", ["0.10.2", "0.11.2", "0.28.0", "0.33.0"])
def test_gpt_oss_captures_to_1024(release: str) -> None:
    got = settings(release, model="openai/gpt-oss-20b")
    assert (len(got.capture_sizes), got.capture_sizes[-1]) == (83, 1024)


def test_eager_captures_nothing() -> None:
    got = settings("0.33.0", {"enforce_eager": True})
    assert (got.capture_sizes, got.cudagraph_mode) == ((), "NONE")


@pytest.mark.parametrize(
    ("asked", "card", "stage", "says"),
    [
        ({"max_model_len": 50000}, "h100", "config",
         "User-specified max_model_len (50000) is greater than the derived max_model_len "
         "(max_position_embeddings=40960.0 or model_max_length=None in model's config.json)."),
        ({"tensor_parallel_size": 3}, "h100", "config",
         "Total number of attention heads (32) must be divisible by tensor parallel size (3)."),
        ({"max_num_seqs": 100, "max_num_batched_tokens": 50}, "h100", "config",
         "max_num_batched_tokens (50) must be greater than or equal to max_num_seqs (100)."),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 100, "max_num_seqs": 1},
         "h100", "config",
         "max_num_batched_tokens (100) is smaller than max_model_len (40960)."),
        ({"quantization": "banana"}, "h100", "config",
         "Unknown quantization method: banana. Must be one of ['awq', 'auto_awq', 'fp8', 'fbgemm_fp8', 'fp_quant', "),
        ({"quantization": "bitsandbytes"}, "h100", "config", "Unknown quantization method: bitsandbytes."),
        ({"dtype": "bfloat16"}, "t4", "device_memory_check",
         "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has "
         "compute capability 7.5."),
    ],
)  # fmt: skip
def test_refusals_carry_vllms_text_and_stage(asked: dict[str, Any], card: str, stage: str, says: str) -> None:
    with pytest.raises(StartRefused) as caught:
        settings("0.28.0", asked, card=card)
    assert caught.value.message.startswith(says)
    assert caught.value.stage == stage


def test_a_method_that_the_config_names_is_judged_by_the_release() -> None:
    config = catalogue.find(QWEN).config | {"quantization_config": {"quant_method": "mxfp9"}}
    shape = read_config(config, name=QWEN)
    assert shape.assumptions
    with pytest.raises(StartRefused, match="Unknown quantization method: mxfp9"):
        resolve(EngineArgs(), shape, Machine(device()), rules_for(parse_release("0.28.0")))


@pytest.mark.parametrize(
    ("release", "says"),
    [
        ("0.10.2", "Unable to load Ray"),
        ("0.11.2", "Tensor parallel size (2) cannot be larger than the number of available GPUs (1)."),
        ("0.28.0", "World size (2) is larger than the number of available GPUs (1) in this node."),
    ],
)
def test_a_world_larger_than_the_machine(release: str, says: str) -> None:
    args = EngineArgs(model="m", tensor_parallel_size=2)
    with pytest.raises(StartRefused) as caught:
        resolve(args, shape(QWEN), Machine(device(), 1), rules_for(parse_release(release)))
    assert caught.value.message.startswith(says)
    elsewhere = EngineArgs(model="m", tensor_parallel_size=2, distributed_executor_backend="ray")
    assert resolve(elsewhere, shape(QWEN), Machine(device(), 1), rules_for(parse_release(release)))


@pytest.mark.parametrize(
    ("release", "says"), [("0.10.2", "invalid device ordinal"), ("0.28.0", "local rank 2 is out of bounds for 2")]
)
def test_replicas_that_find_no_device(release: str, says: str) -> None:
    args = EngineArgs(model="m", tensor_parallel_size=2, data_parallel_size=2)
    with pytest.raises(StartRefused, match=says) as caught:
        resolve(args, shape(QWEN), Machine(device(), 2), rules_for(parse_release(release)))
    assert caught.value.stage == "device_memory_check"
    assert resolve(args, shape(QWEN), Machine(device(), 4), rules_for(parse_release(release)))


def test_a_longer_context_is_let_through_when_asked() -> None:
    got = settings("0.28.0", {"max_model_len": 50000}, env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"})
    assert (got.max_model_len, got.derived_max_model_len) == (50000, 40960)
    assert any("VLLM_ALLOW_LONG_MAX_MODEL_LEN" in note for note in got.notes)


def test_auto_is_remembered() -> None:
    got = settings("0.28.0", {"max_model_len": -1})
    assert (got.auto_max_model_len, got.max_model_len) == (True, 40960)


YARN = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}


@pytest.mark.parametrize(("release", "length"), [("0.8.5", 131072), ("0.29.0", 131072), ("0.30.0", 32768)])
def test_yarn_extends_the_context_until_0_29(release: str, length: int) -> None:
    assert settings(release, {"hf_overrides": YARN}, "Qwen/Qwen2.5-7B-Instruct").max_model_len == length


@pytest.mark.parametrize(("release", "length"), [("0.10.2", 131072), ("0.11.2", 4096)])
def test_longrope_defaults_to_the_original_context(release: str, length: int) -> None:
    assert settings(release, model="microsoft/Phi-3.5-mini-instruct").max_model_len == length


@pytest.mark.parametrize(
    ("release", "asked", "prefix", "states"),
    [
        ("0.14.1", {}, False, "none"),
        ("0.19.1", {"enable_prefix_caching": True}, True, "align"),
        ("0.27.1", {}, False, "none"),
        ("0.28.0", {}, True, "align"),
        ("0.28.0", {"enable_prefix_caching": False, "mamba_cache_mode": "align"}, False, "none"),
    ],
)
def test_prefix_caching_of_hybrids(release: str, asked: dict[str, Any], prefix: bool, states: str) -> None:
    got = settings(release, asked, "Qwen/Qwen3-Next-80B-A3B-Instruct")
    assert (got.enable_prefix_caching, got.mamba_cache_mode) == (prefix, states)


def test_the_same_mistake_is_reported_first_as_in_vllm() -> None:
    with pytest.raises(StartRefused, match="User-specified"):
        settings("0.28.0", {"max_model_len": 50000, "tensor_parallel_size": 3})
