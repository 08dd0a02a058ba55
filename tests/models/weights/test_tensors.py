from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.errors import BadConfig
from kvroom.models import catalogue
from kvroom.models.config import read_config
from kvroom.models.fields import Fields
from kvroom.models.weights import Part, is_known, parameters, tensors_of
from kvroom.models.weights.tensor import guessed_share

DIFFER = {
    "Qwen/Qwen3-Embedding-8B": (
        621_219_840,
        "the published count leaves out the output head, which its config does not say is shared",
    ),
    "moonshotai/Kimi-K2.5": (471_143_920, "transformers counted the language model only, without the tower"),
    "nvidia/Kimi-K2.6-NVFP4": (
        471_143_920,
        "transformers counted the language model only, without the tower",
    ),
}
"""Catalogue models whose count differs from transformers': by how much, and why."""


def listed(name: str) -> tuple[int, int | None, int]:
    entry = catalogue.find(name)
    assert entry is not None
    main, _ = tensors_of(Fields(entry.config), entry.config["architectures"][0])
    return parameters(main), entry.total_params, len(main)


def test_parameters_equal_transformers_count_over_the_whole_catalogue() -> None:
    exact = 0
    for name in catalogue.index():
        ours, published, _ = listed(name)
        if published is None:
            continue
        difference, _why = DIFFER.get(name, (0, ""))
        assert ours - published == difference, name
        exact += difference == 0
    assert exact == 171


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("LGAI-EXAONE/EXAONE-3.5-7.8B-Instruct", 7.818),
        ("internlm/internlm2-7b", 7.738),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", 49.867),
        ("THUDM/glm-4-9b", 9.400),
        ("XiaomiMiMo/MiMo-7B-Base", 7.623),
    ],
)
def test_models_that_transformers_cannot_count_have_their_published_size(name: str, billions: float) -> None:
    ours, published, _ = listed(name)
    assert published is None
    assert ours / 1e9 == pytest.approx(billions, abs=0.001)


def test_every_architecture_of_the_catalogue_is_known_and_short() -> None:
    for name in catalogue.index():
        entry = catalogue.find(name)
        assert entry is not None
        assert is_known(entry.config["architectures"][0]), name
        assert listed(name)[2] < 80, name


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    entry = catalogue.find(name)
    assert entry is not None
    return {**entry.config, **changes}


def test_draft_layers_are_apart_and_not_counted() -> None:
    config = config_of("deepseek-ai/DeepSeek-V3")
    main, draft = tensors_of(Fields(config), "DeepseekV3ForCausalLM")
    without, none = tensors_of(Fields({**config, "num_nextn_predict_layers": 0}), "DeepseekV3ForCausalLM")
    assert parameters(main) == parameters(without)
    assert none == ()
    # one decoder layer of 256 experts and the joining projection of 2 x 7168 x 7168
    assert 11.4e9 < parameters(draft) < 11.7e9
    assert {tensor.part for tensor in draft} == {Part.DRAFT}


@pytest.mark.parametrize(
    ("name", "share"),
    [("Qwen/Qwen3.5-27B", 0.016), ("Qwen/Qwen3-Next-80B-A3B-Instruct", 0.02), ("zai-org/GLM-4.5-Air", 0.03)],
)
def test_draft_layers_are_a_few_percent_of_the_model(name: str, share: float) -> None:
    entry = catalogue.find(name)
    assert entry is not None
    text = dict(entry.config.get("text_config") or entry.config, mtp_num_hidden_layers=1)
    config = {**entry.config, "text_config": text} if "text_config" in entry.config else text
    main, draft = tensors_of(Fields(config), entry.config["architectures"][0])
    assert parameters(draft) / parameters(main) == pytest.approx(share, abs=share / 2)


def test_an_unknown_architecture_is_listed_from_its_fields() -> None:
    config = config_of("meta-llama/Llama-3.1-8B", architectures=["NewThingForCausalLM"], model_type="newthing")
    main, _ = tensors_of(Fields(config), "NewThingForCausalLM")
    assert not is_known("NewThingForCausalLM")
    assert parameters(main) == 8_030_261_248


def test_an_unknown_mixture_of_experts_is_listed_from_its_fields() -> None:
    config = config_of("Qwen/Qwen3-30B-A3B", architectures=["NewMoe"], model_type="newmoe")
    main, _ = tensors_of(Fields(config), "NewMoe")
    assert parameters(main) == pytest.approx(30_532_122_624, rel=0.001)


def test_another_name_for_a_known_model_type_is_listed_as_that_type() -> None:
    config = config_of("Qwen/Qwen2.5-7B-Instruct")
    same, _ = tensors_of(Fields(config), "MyFineTuneForCausalLM")
    reward, _ = tensors_of(Fields(config), "Qwen2ForSequenceClassification")
    assert parameters(same) == 7_615_616_512
    assert parameters(reward) == 7_615_616_512 - 152_064 * 3584
    assert guessed_share(same) == 0


def test_a_tower_that_is_not_known_is_guessed_beside_a_known_language_model() -> None:
    config = config_of("google/gemma-3-27b-it", architectures=["OtherVision"], model_type="othervision")
    main, _ = tensors_of(Fields(config), "OtherVision")
    assert 0.01 < guessed_share(main) < 0.03
    assert parameters(main) == pytest.approx(27_432_406_640, rel=0.01)


def test_tied_embeddings_count_once() -> None:
    untied = config_of("Qwen/Qwen3-0.6B", tie_word_embeddings=False)
    tied = {**untied, "tie_word_embeddings": True}
    counts = [parameters(tensors_of(Fields(c), "Qwen3ForCausalLM")[0]) for c in (untied, tied)]
    assert counts[0] - counts[1] == 151_936 * 1024


@pytest.mark.parametrize(
    "broken",
    [
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 0},
        {"hidden_size": "wide"},
        {"vocab_size": -5},
        {"num_attention_heads": 0},
        {"num_key_value_heads": 1.5},
    ],
)
def test_damaged_widths_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(BadConfig):
        tensors_of(Fields(config_of("Qwen/Qwen3-8B", **broken)), "Qwen3ForCausalLM")


junk = st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), st.text(max_size=5), st.lists(st.integers()))
names = sorted(catalogue.index())[::9]


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(names), data=st.data())
def test_any_field_may_be_junk_without_a_traceback(name: str, data: st.DataObject) -> None:
    config = config_of(name)
    inner = config.get("text_config")
    target = inner if isinstance(inner, dict) and data.draw(st.booleans()) else config
    field = data.draw(st.sampled_from(sorted(target)))
    changed = {**target, field: data.draw(junk)}
    config = {**config, "text_config": changed} if target is inner else changed
    try:
        main, _ = tensors_of(Fields(config), config_of(name)["architectures"][0])
    except BadConfig:
        return
    assert all(tensor.elements > 0 for tensor in main)


def test_the_shape_carries_the_count() -> None:
    shape = read_config(config_of("Qwen/Qwen3-8B"), name="x")
    assert shape.total_params == 8_190_735_360
