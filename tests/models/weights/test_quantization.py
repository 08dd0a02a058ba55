from __future__ import annotations

from typing import Any

import pytest

from kvroom.errors import BadConfig, UsageError
from kvroom.models.catalogue import find
from kvroom.models.fields import Fields
from kvroom.models.quantization import (
    Matcher,
    Quantization,
    assume_quantization,
    bare,
    online_quantization,
    read_quantization,
)
from kvroom.models.schemes import GGUF_BITS, NAMES, Grain, Scheme


def read(config: dict[str, Any], hf: dict[str, Any] | None = None, **model: Any) -> Quantization:
    found = read_quantization(Fields({**model, "quantization_config": config} if config else model), hf)
    assert found is not None
    return found


def scheme(quantization: Quantization, name: str, **kind: bool) -> Scheme | None:
    return quantization.scheme_for((name,), **kind)


def test_plain_weights_have_none() -> None:
    assert read_quantization(Fields({"model_type": "llama"})) is None


def test_block_fp8_and_its_exceptions() -> None:
    found = read(
        {
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate", "gate", "model.vision_tower"],
        }
    )
    assert found.method == "fp8"
    assert found.plain_towers
    first = scheme(found, "layers.0.self_attn.q_proj")
    assert first is not None
    assert (first.grain, first.group, first.bits) == (Grain.BLOCK, 128, 8)
    assert scheme(found, "layers.3.mlp.gate") is None
    assert scheme(found, "layers.3.mlp.gate_proj") is first


def test_static_fp8_stores_input_scales() -> None:
    found = read({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}).scheme
    assert found is not None
    assert found.static_input
    assert found.grain is Grain.TENSOR


def test_awq_ignores_by_part_of_the_name() -> None:
    found = read(
        {
            "quant_method": "awq",
            "bits": 4,
            "group_size": 64,
            "modules_to_not_convert": ["visual", "mlp.gate."],
        }
    )
    first = scheme(found, "layers.0.mlp.gate_proj")
    assert first is not None
    assert (first.bits, first.group, first.zeros) == (4, 64, True)
    assert scheme(found, "visual.blocks.0.attn.qkv") is None


def test_gptq_overrides_and_leaves_out_by_pattern() -> None:
    found = read(
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "desc_act": True,
            "sym": True,
            "dynamic": {r"-:.*layers\.1\..*": {}, r"+:.*down_proj.*": {"bits": 8, "group_size": 64}},
        }
    )
    assert scheme(found, "layers.1.mlp.down_proj") is None
    wide, normal = scheme(found, "layers.2.mlp.down_proj"), scheme(found, "layers.2.mlp.up_proj")
    assert wide is not None
    assert normal is not None
    assert (wide.bits, wide.group) == (8, 64)
    assert (normal.bits, normal.act_order, normal.zeros) == (4, True, False)


def test_a_channelwise_gptq_has_one_group() -> None:
    found = read({"quant_method": "gptq", "bits": 8, "group_size": -1}).scheme
    assert found is not None
    assert found.grain is Grain.CHANNEL


@pytest.mark.parametrize(
    ("weights", "inputs", "format_", "bits", "grain"),
    [
        (
            {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
            None,
            "packed",
            4,
            Grain.GROUP,
        ),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8}, "int8", 8, Grain.CHANNEL),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, None, "packed", 8, Grain.CHANNEL),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, {"dynamic": True}, "fp8", 8, Grain.CHANNEL),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, {"dynamic": False}, "fp8", 8, Grain.TENSOR),
        (
            {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
            {},
            "fp8",
            8,
            Grain.BLOCK,
        ),
        (
            {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
            {},
            "nvfp4",
            4,
            Grain.GROUP,
        ),
        (
            {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
            None,
            "mxfp4",
            4,
            Grain.GROUP,
        ),
    ],
)
def test_compressed_tensors_schemes(
    weights: dict[str, Any], inputs: dict[str, Any] | None, format_: str, bits: int, grain: Grain
) -> None:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    found = read({"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}).scheme
    assert found is not None
    assert (found.format, found.bits, found.grain) == (format_, bits, grain)


def test_compressed_tensors_groups_with_targets_come_before_the_general_one() -> None:
    wide = {"targets": ["re:.*down_proj"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
    rest = {
        "targets": ["Linear"],
        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
    }
    found = read(
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": rest, "group_1": wide},
            "ignore": ["lm_head", "re:.*self_attn.*"],
            "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        }
    )
    assert found.kv_cache_dtype_hint == "fp8"
    kinds = [scheme(found, f"layers.9.{name}") for name in ("mlp.down_proj", "mlp.up_proj", "self_attn.q_proj")]
    assert [kind.format if kind else None for kind in kinds] == ["fp8", "packed", None]
    assert scheme(found, "lm_head", head=True) is None


def test_modelopt_mixes_formats_by_layer() -> None:
    found = read(
        {},
        {
            "quantization": {
                "quant_algo": "MIXED_PRECISION",
                "kv_cache_quant_algo": "FP8",
                "exclude_modules": ["mtp*"],
                "quantized_layers": {
                    "model.language_model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                    "model.language_model.layers.0.mlp.experts": {
                        "quant_algo": "W4A16_NVFP4",
                        "group_size": 16,
                    },
                    "lm_head": {"quant_algo": "W4A16_NVFP4"},
                },
            }
        },
    )
    assert found.method == "modelopt_mixed"
    assert found.kv_cache_dtype_hint == "fp8"
    kinds = [
        scheme(found, "layers.0.self_attn.q_proj"),
        scheme(found, "layers.0.mlp.experts", expert=True),
        scheme(found, "lm_head", head=True),
        scheme(found, "layers.1.self_attn.q_proj"),
        scheme(found, "mtp.layers.0.mlp.experts", expert=True),
    ]
    assert [kind.format if kind else None for kind in kinds] == ["fp8", "nvfp4", "nvfp4", None, None]


@pytest.mark.parametrize(("algorithm", "hint"), [("FP8", "fp8"), ("NVFP4", "nvfp4"), (None, None)])
def test_modelopt_asks_for_a_cache_dtype(algorithm: str | None, hint: str | None) -> None:
    found = read({}, {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": algorithm}})
    assert (found.method, found.kv_cache_dtype_hint) == ("modelopt_fp4", hint)
    assert found.unlisted  # no exceptions at all: perhaps an abridged file


def test_mxfp4_is_for_experts_only() -> None:
    found = read({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})
    assert scheme(found, "layers.0.self_attn.q_proj") is None
    assert scheme(found, "layers.0.mlp.experts", expert=True) is not None


def test_deepseek_v4_has_fp4_experts_beside_fp8_layers() -> None:
    entry = find("deepseek-ai/DeepSeek-V4-Flash")
    assert entry is not None
    found = read_quantization(Fields(entry.config))
    assert found is not None
    kinds = scheme(found, "layers.3.attn.wq_b"), scheme(found, "layers.3.ffn.experts", expert=True)
    assert [kind.format if kind else None for kind in kinds] == ["fp8", "mxfp4"]


def test_bitsandbytes_reads_its_width() -> None:
    four = read({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}).scheme
    eight = read({"quant_method": "bitsandbytes", "load_in_8bit": True}).scheme
    assert four is not None
    assert eight is not None
    assert (four.format, four.nested, eight.format) == ("nf4", True, "llm.int8")


def test_an_unreadable_part_is_an_error_and_an_unknown_method_is_plain() -> None:
    with pytest.raises(BadConfig):
        read_quantization(Fields({"quantization_config": {"quant_method": "awq", "bits": "four"}}))
    with pytest.raises(BadConfig):
        read_quantization(Fields({"quantization_config": "awq"}))
    assert read_quantization(Fields({"quantization_config": {"quant_method": "new-thing"}})) is None


def test_every_name_can_be_assumed_and_others_are_refused() -> None:
    for name in (*NAMES, *(f"gguf:{kind}" for kind in GGUF_BITS)):
        found = assume_quantization(name)
        assert found.assumed
        assert found.scheme is not None
    for wrong in ("", "q9", "gguf:Q9_X", "x" * 10_000):
        with pytest.raises(UsageError) as error:
            assume_quantization(wrong)
        assert len(str(error.value)) < 1000


def test_online_quantisation_is_known_by_flag() -> None:
    found = online_quantization("fp8")
    assert found is not None
    assert found.scheme is not None
    assert found.scheme.online
    assert online_quantization("awq") is None


def test_names_are_compared_without_their_roots() -> None:
    assert bare("model.language_model.layers.0.x") == bare("language_model.model.layers.0.x") == "layers.0.x"


def test_patterns_of_all_kinds_match() -> None:
    matcher = Matcher(
        ["lm_head", "model.layers.0*", "*.mlp.shared_expert.*", "re:.*vision.*", "model.layers.7", "re:["]
    )
    hits = [
        "lm_head",
        "layers.0.mlp.up_proj",
        "layers.3.mlp.shared_expert.up_proj",
        "vision.x",
        "layers.7.mlp.x",
    ]
    assert all(matcher(name) for name in hits)
    assert not any(matcher(name) for name in ("layers.1.mlp.up_proj", "layers.77.mlp.x", "layers.3.mlp.shared"))
