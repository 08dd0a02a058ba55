"""What a release refuses of ``--speculative-config``; the texts are those of the engine."""

from __future__ import annotations

from typing import Any

import pytest

from kvroom import plan

UNKNOWN = "Input should be 'ngram', 'medusa', 'mlp_speculator', 'draft_model', 'suffix', 'custom_class', 'eagle', "
NO_MODEL = "num_speculative_tokens was provided but without speculative model."
NO_TOKENS = (
    "num_speculative_tokens must be provided with speculative model unless the draft model config contains an "
    "n_predict parameter."
)


def message(release: str = "0.32.0", target: str = "Qwen/Qwen3-8B", **config: Any) -> str | None:
    found = plan(target, gpu="8x H200", vllm=release, offline=True, tensor_parallel_size=8, speculative_config=config)
    return found.verdict.message if found.verdict.status == "fails" else None


def test_a_method_that_the_release_does_not_know() -> None:
    said = message(method="lookahead", num_speculative_tokens=3)
    assert said is not None
    assert said.startswith(UNKNOWN)
    assert said.endswith("'inkling_mtp', 'glm5_next_mtp', 'dflash', 'ngram_gpu' or 'dspark'")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"method": "eagle3", "num_speculative_tokens": 3}, NO_MODEL),
        ({"num_speculative_tokens": 3}, NO_MODEL),
        ({"method": "eagle3"}, NO_TOKENS),
        ({}, NO_TOKENS),
        ({"method": "eagle3", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 3}, None),
        ({"method": "ngram", "num_speculative_tokens": 3}, None),
    ],
)
def test_a_draft_without_its_model_or_its_tokens(config: dict[str, Any], said: str | None) -> None:
    assert message(**config) == said


def test_layers_of_the_models_own_need_neither() -> None:
    model = "deepseek-ai/DeepSeek-V3"
    assert message(target=model, method="mtp", num_speculative_tokens=1) is None
    assert message(target=model, method="deepseek_mtp") is None


def test_each_release_has_its_own_list() -> None:
    config = {"method": "medusa", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 3}
    assert message("0.32.0", **config) is None
    assert "medusa" not in str(message("0.33.0", **config))
    assert message("0.33.0", **config) is not None
    assert "without speculative model" in str(message("0.10.2", method="eagle3", num_speculative_tokens=3))


@pytest.mark.parametrize("method", [["ngram"], {"a": 1}, 7])
@pytest.mark.parametrize("release", ["0.8.5", "0.10.2", "0.32.0"])
def test_a_method_that_is_no_text_is_refused(release: str, method: Any) -> None:
    assert message(release, method=method, num_speculative_tokens=3) is not None
