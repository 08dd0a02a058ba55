"""NVIDIA's tables: how launches are named for them, and the real package where it is installed."""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kvroom.cli.throughput import throughput
from kvroom.devices.catalogue import find_device
from kvroom.errors import UsageError
from kvroom.ledger.predict import Prediction
from kvroom.plans.make import plan
from kvroom.throughput.aiconfigurator import Aiconfigurator, modes_of, sentence, sizes_of
from kvroom.throughput.estimate import Load, estimate
from kvroom.throughput.tables import NotInTables, Tabled, beside

NAMES = json.loads(files("kvroom.data.sizing").joinpath("tables.json").read_text("utf-8"))
LOAD = Load(1024, 128)


def _plan(model: str, gpu: str = "H100", **flags: Any) -> Prediction:
    return plan(model, gpu=gpu, offline=True, learned=False, vllm="0.28.0", **flags).prediction


@pytest.mark.parametrize(
    ("model", "gpu", "flags", "expected"),
    [
        ("Qwen/Qwen3-8B", "H100", {}, ("bfloat16", "bfloat16", None)),
        ("Qwen/Qwen3-8B", "H100", {"kv_cache_dtype": "fp8", "quantization": "fp8"}, ("fp8", "fp8", None)),
        ("Qwen/Qwen3-8B-FP8", "H100", {}, ("fp8_block", "bfloat16", None)),
        ("Qwen/Qwen3-8B", "H100", {"assume_quantization": "awq"}, ("int4_wo", "bfloat16", None)),
        ("openai/gpt-oss-20b", "H100", {}, ("bfloat16", "bfloat16", "w4a16_mxfp4")),
        ("deepseek-ai/DeepSeek-R1", "8x H200", {"tensor_parallel_size": 8}, ("fp8_block", "bfloat16", "fp8_block")),
        ("Qwen/Qwen3-8B", "B200", {"assume_quantization": "nvfp4"}, ("nvfp4", "bfloat16", None)),
    ],
)
def test_storage_is_named_as_the_tables_name_it(
    model: str, gpu: str, flags: dict[str, Any], expected: tuple[str, str, str | None]
) -> None:
    found = modes_of(_plan(model, gpu, max_model_len=4096, **flags))
    assert (found["gemm_quant_mode"], found["kvcache_quant_mode"], found.get("moe_quant_mode")) == expected


@pytest.mark.parametrize(
    ("gpu", "flags", "reason"),
    [
        ("H100", {"dtype": "float32"}, "float32"),
        ("H100", {"assume_quantization": "gguf"}, "stored as gguf"),
        ("A100-80GB", {"assume_quantization": "fp8"}, "stored as fp8 tensor on NVIDIA A100"),
        ("H100", {"assume_quantization": "nvfp4"}, "stored as nvfp4 on NVIDIA H100"),
    ],
)
def test_storage_without_kernels_is_said(gpu: str, flags: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotInTables, match=reason):
        modes_of(_plan("Qwen/Qwen3-8B", gpu, max_model_len=2048, **flags))


def test_replicas_count_only_where_they_share_experts() -> None:
    flags = {"tensor_parallel_size": 2, "data_parallel_size": 2, "max_model_len": 4096}
    dense = sizes_of(_plan("Qwen/Qwen3-8B", "4x H100", **flags))
    assert (dense["tp_size"], dense["attention_dp_size"]) == (2, 1)
    routed = sizes_of(_plan("Qwen/Qwen3-30B-A3B", "4x H100", **flags))
    assert (routed["attention_dp_size"], routed["moe_tp_size"], routed["moe_ep_size"]) == (2, 4, 1)
    spread = sizes_of(_plan("Qwen/Qwen3-30B-A3B", "4x H100", **flags, enable_expert_parallel=True))
    assert (spread["moe_tp_size"], spread["moe_ep_size"]) == (1, 4)


def test_every_named_card_is_in_the_catalogue() -> None:
    assert [find_device(name).id for name in NAMES["systems"]] == list(NAMES["systems"])


def test_errors_are_cut_to_what_is_missing() -> None:
    told = "perf database error: attention data missing for Key { size: 64 }: tried lane_order at /opt/x/0.14.0; y"
    assert sentence(told) == "attention data missing for Key { size: 64 }"
    assert sentence("") == ""


def test_without_the_package_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", None)
    with pytest.raises(UsageError, match=r"kvroom\[perf\]"):
        Aiconfigurator()
    words = ["Qwen/Qwen3-8B", "--gpu", "H100", "--offline", "--perf", "aiconfigurator"]
    result = CliRunner().invoke(throughput, words, standalone_mode=False)
    assert isinstance(result.exception, UsageError)


def _told(model: str, gpu: str, **flags: Any) -> Tabled:
    found = estimate(_plan(model, gpu, **flags), LOAD, (1, 32))
    return beside(found, Aiconfigurator(), offline=True)


@pytest.fixture
def package() -> None:
    pytest.importorskip("aiconfigurator_core")


@pytest.mark.usefixtures("package")
def test_real_tables_are_near_the_roofline_and_keep_silent(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []
    sys.addaudithook(lambda event, _: seen.append(event) if event.startswith(("socket.connect", "urllib")) else None)
    prediction = _plan("Qwen/Qwen3-8B", "H100", max_model_len=8192)
    found = estimate(prediction, LOAD, (1, 32))
    told = beside(found, Aiconfigurator(), offline=True)
    assert told.source.startswith("aiconfigurator 0.")
    assert ", vllm 0." in told.source
    for row, other in zip(found.rows, told.rows, strict=True):
        assert 0.5 < other.tpot / row.tpot < 1.3
        assert 0.2 < other.ttft / row.ttft < 1.5
        assert 0.8 < other.throughput / row.throughput < 2
    assert not seen
    assert capfd.readouterr() == ("", "")
    assert not list(Path(tempfile.gettempdir()).glob("kvroom-perf-*"))


@pytest.mark.usefixtures("package")
def test_real_tables_tell_experts_and_parallelism() -> None:
    flags = {"data_parallel_size": 2, "enable_expert_parallel": True, "max_model_len": 8192}
    shared = _told("Qwen/Qwen3-30B-A3B", "2x H100", **flags)
    assert shared.rows[1].throughput > shared.rows[0].throughput
    assert _told("Qwen/Qwen3-8B-FP8", "H200", max_model_len=8192).note == NAMES["caveats"]["fp8_block"]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("model", "gpu", "flags", "reason"),
    [
        ("Qwen/Qwen3-8B", "RTX 4090", {}, "no kernels measured on NVIDIA GeForce RTX 4090"),
        ("google/gemma-2-9b", "H100", {}, "architecture Gemma2ForCausalLM is not supported"),
        ("Qwen/Qwen3-8B", "H100", {"assume_quantization": "awq"}, "GEMM perf data missing for quant 'int4_wo'"),
    ],
)
def test_real_tables_say_what_they_lack(model: str, gpu: str, flags: dict[str, Any], reason: str) -> None:
    told = _told(model, gpu, max_model_len=2048, **flags)
    assert told.rows == ()
    assert reason in told.note
    assert "/" not in told.note.replace(model, "")
