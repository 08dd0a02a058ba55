import pytest

from kvroom.models import catalogue
from kvroom.models.catalogue import unfold


def test_it_holds_every_packaged_model_with_its_source() -> None:
    assert len(catalogue.index()) == 183
    for name in catalogue.index():
        entry = catalogue.find(name)
        assert entry is not None
        assert entry.name == name
        assert entry.source
        assert entry.grade in ("A", "A-excerpt", "A-derived", "B", "C")
        assert entry.config["model_type"]


@pytest.mark.parametrize("asked", ["Qwen/Qwen3-8B", "qwen/qwen3-8b", "Qwen3-8B", " QWEN3-8B ", "qwen3-8b/"])
def test_a_model_is_found_in_any_case_and_without_its_organisation(asked: str) -> None:
    assert catalogue.resolve(asked) == "Qwen/Qwen3-8B"


@pytest.mark.parametrize("asked", ["", "Qwen", "Qwen/Qwen3", "other/Qwen3-8B", "/", "x" * 100_000])
def test_anything_else_is_not(asked: str) -> None:
    assert catalogue.find(asked) is None


def test_near_names_are_suggested_best_first() -> None:
    assert catalogue.nearest("meta-lama/Llama-3.1-8B")[0] == "meta-llama/Llama-3.1-8B"
    assert "Qwen/Qwen3-8B" in catalogue.nearest("qwen3-8")
    assert catalogue.nearest("zzzzzz") == ()


def test_folded_names_are_written_out() -> None:
    folded = {"layers.[0-1].experts.[2,4].w1": {"algo": "X"}, "lm_head": 1}

    assert unfold(folded) == {
        "layers.0.experts.2.w1": {"algo": "X"},
        "layers.1.experts.2.w1": {"algo": "X"},
        "layers.0.experts.4.w1": {"algo": "X"},
        "layers.1.experts.4.w1": {"algo": "X"},
        "lm_head": 1,
    }
    assert unfold({"eos": [1, 2], "layer_types": ["a", "b"]}) == {"eos": [1, 2], "layer_types": ["a", "b"]}


def test_a_folded_list_of_a_published_config_has_its_length_again() -> None:
    entry = catalogue.find("zai-org/GLM-5-FP8")
    assert entry is not None

    names = entry.config["quantization_config"]["modules_to_not_convert"]

    assert len(names) == len(set(names)) > 400
    assert not any("[" in name for name in names)
