"""Which architectures are known, and the model_type behind an architecture's name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

POOLING_ENDINGS = (
    "ForTextEncoding", "EmbeddingModel", "ForSequenceClassification", "ForTokenClassification",
    "ForAudioClassification", "ForImageClassification", "ForVideoClassification", "ClassificationModel",
    "ForRewardModeling", "RewardModel", "ForRewardModel", "ForProcessRewardModel", "ForRanking",
    "ForRetrieval", "ForMaskedLM", "Model",
)  # fmt: skip
"""vLLM takes architectures with these endings as pooling models (config/model.py: _SUFFIX_TO_DEFAULTS)."""
GENERATIVE_ENDINGS = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel")


@dataclass(frozen=True, slots=True)
class _Table:
    attention: frozenset[str]
    attention_types: frozenset[str]
    same_layers_as: Mapping[str, str]
    generative: frozenset[str]


@cache
def _table() -> _Table:
    raw = json.loads(files("kvroom.data.models").joinpath("architectures.json").read_text("utf-8"))
    return _Table(
        frozenset(raw["attention"]),
        frozenset(raw["attention_types"]),
        raw["same_layers_as"],
        frozenset(raw["generative"]),
    )


def model_type_of(architecture: str) -> str:
    """The model_type whose layers ``architecture`` has, where the name alone tells; else empty."""
    return _table().same_layers_as.get(architecture, "")


def is_known(model_type: str, architecture: str) -> bool:
    """Whether ordinary attention (full, or windows by the config's fields) is right for this model."""
    return architecture in _table().attention or model_type in _table().attention_types


def is_pooling(architecture: str) -> bool:
    """Whether vLLM serves ``architecture`` as a pooling model (embeddings, scores) by default."""
    if architecture.endswith(GENERATIVE_ENDINGS) or architecture in _table().generative:
        return False
    return architecture.endswith(POOLING_ENDINGS)
