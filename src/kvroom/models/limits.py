"""What bounds the context: the config's position limits and its rotary embedding.

Mirrors ``derive_max_model_len_and_key`` (vllm/transformers_utils/model_arch_config_convertor.py) and
``iter_rope_parameters`` (vllm/transformers_utils/config.py), which read the language model's own config.
"""

from __future__ import annotations

from kvroom.models.fields import Fields
from kvroom.models.shape import Rope

LIMIT_NAMES = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""Fields that limit the context, in vLLM's order of reading."""
ENDLESS = 1 << 40


def position_limits(language: Fields) -> tuple[tuple[str, int], ...]:
    """(field, tokens) of every limit that the language config states; BadConfig for a negative one."""
    found = []
    for name in LIMIT_NAMES:
        value = language.raw.get(name)
        if isinstance(value, float) and value >= ENDLESS:  # 1e30, a tokenizer's way to say "no limit"
            continue
        tokens = language.maybe_int(name, low=1) if value is not None else None
        if tokens is not None:
            found.append((name, tokens))
    return tuple(found)


def read_rope(language: Fields) -> Rope:
    """The rotary scaling, from ``rope_parameters`` or the older ``rope_scaling``.

    With one set of parameters a layer type, the one that scales decides (vLLM assumes they agree).
    """
    best = Rope(original_max_position_embeddings=language.maybe_int("original_max_position_embeddings"))
    for name in ("rope_scaling", "rope_parameters"):
        scaling = language.raw.get(name)
        if not isinstance(scaling, dict):
            continue
        for each in _each(scaling):
            rope = _one(Fields(each, f"{language.where}: {name}"), language)
            if rope.rope_type != "default" or best.rope_type == "default":
                best = rope
    return best


def _each(scaling: dict[str, object]) -> list[dict[str, object]]:
    nested = [value for key, value in scaling.items() if key.endswith("_attention") and isinstance(value, dict)]
    return nested or [scaling]


def _one(scaling: Fields, language: Fields) -> Rope:
    original = scaling.maybe_int("original_max_position_embeddings", low=1)
    if original is None:
        original = language.maybe_int("original_max_position_embeddings", low=1)
    return Rope(
        scaling.str("rope_type", "type", default="default"),
        scaling.float("factor", default=1.0),
        original,
    )
