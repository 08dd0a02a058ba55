from __future__ import annotations

import pytest

from kvroom.errors import UnknownModel
from kvroom.models.kin import find_kin
from kvroom.plans.model import find_model


@pytest.mark.parametrize(
    ("name", "like", "quantization"),
    [
        ("/models/Qwen3-8B", "Qwen/Qwen3-8B", None),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", None),
        ("casperhansen/deepseek-r1-distill-qwen-14b-awq", "Qwen/Qwen2.5-14B-Instruct", "awq"),
        ("RedHatAI/Qwen3-14B-FP8-dynamic", "Qwen/Qwen3-14B", "fp8"),
        ("unsloth/phi-4-bnb-4bit", "microsoft/phi-4", "bitsandbytes"),
        ("RedHatAI/Qwen3.8-27B-INT4", "Qwen/Qwen3.6-27B", "w4a16"),
        ("RedHatAI/Qwen3.6-35B-A3B-NVFP4", "Qwen/Qwen3.6-35B-A3B", "nvfp4"),
        ("qwen3.6-35b-a3b-nvfp4", "nvidia/Qwen3.6-35B-A3B-NVFP4", None),
        ("DeepSeek-R1-Distill-Qwen-32B-Q4_K_M.gguf", "Qwen/Qwen2.5-32B-Instruct", "gguf:Q4_K_M"),
        ("unsloth/Qwen3-8B-FP8", "Qwen/Qwen3-8B-FP8", None),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B", None),
    ],
)
def test_a_name_that_speaks_of_a_packaged_model(name: str, like: str, quantization: str | None) -> None:
    kin = find_kin(name)
    assert kin is not None
    assert (kin.entry.name, kin.quantization) == (like, quantization)


def test_recurrent_layers_beside_experts_are_left_plain_and_dense_models_are_not() -> None:
    """As llm-compressor's recipes have it; public logs say 23.45 and 18.5 GiB of these two."""
    ignored = {}
    for name in ("RedHatAI/Qwen3.6-35B-A3B-NVFP4", "RedHatAI/Qwen3.8-27B-INT4"):
        quantization = find_model(name, offline=True)[0].quantization
        assert quantization is not None
        ignored[name] = quantization.scheme_for(("layers.0.linear_attn.in_proj_qkvz",)) is None
    assert list(ignored.values()) == [True, False]


@pytest.mark.parametrize(
    "name", ["no/such-model", "Qwen", "acme/qwen3-9b", "Qwen/Qwen3-8B-Reranker", "llama", "", "x" * 300, "gpt-oss-200b"]
)
def test_other_names_speak_of_none(name: str) -> None:
    assert find_kin(name) is None


def test_the_stand_in_is_said_and_believes_the_length_asked_for() -> None:
    shape, notes = find_model("/models/Qwen3-8B-AWQ", offline=True, asked_length=131072)
    assert shape.name == "Qwen/Qwen3-8B"
    assert shape.quantization is not None
    assert shape.quantization.method == "awq"
    assert dict(shape.position_limits)["max_position_embeddings"] == 131072
    (note,) = notes
    assert "Qwen/Qwen3-8B" in note
    assert "check that /models/Qwen3-8B-AWQ has that architecture" in note


def test_a_model_without_kin_keeps_its_error() -> None:
    with pytest.raises(UnknownModel, match="no/such-model"):
        find_model("no/such-model", offline=True)
