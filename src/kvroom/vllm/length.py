"""``max_model_len``: what the model's config allows, and what the user's value makes of it.

Mirrors config/model.py: _get_and_verify_max_len and, since 0.14,
transformers_utils/model_arch_config_convertor.py: derive_max_model_len_and_key.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.models.shape import ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.refusals import refuse
from kvroom.vllm.rules import Rules

_NO_ROTARY = frozenset({"n_positions", "max_target_positions", "max_seq_len", "seq_length"})
"""Limits of models with learned or other positions, whose length no release turns into a float."""


@dataclass(frozen=True, slots=True)
class Length:
    """The context of one launch, in tokens."""

    max_model_len: int
    derived: int
    derived_from: str
    auto: bool
    notes: tuple[str, ...] = ()


def resolve_length(args: EngineArgs, shape: ModelShape, rules: Rules) -> Length:
    """The context that vLLM settles on.

    Raises StartRefused when the user asks for more than the config allows, unless
    ``VLLM_ALLOW_LONG_MAX_MODEL_LEN`` is set or the config's ``model_max_length`` covers it.
    """
    limit, key = _limit(shape, rules)
    window = shape.sliding_window
    if args.disable_sliding_window and window is not None and (limit is None or window < limit):
        limit, key = window, "sliding_window"
    wanted = args.max_model_len
    auto = wanted == -1
    notes: list[str] = []
    if limit is None:
        default = rules["unstated_length"]
        notes.append(f"The config states no context limit; vLLM assumes {default} tokens.")
        length = default if wanted is None or auto else wanted
        return Length(length, max(length, default), "None", auto, tuple(notes))
    derived, text = _scaled(limit, key, args, shape, rules)
    if wanted is None or auto:
        length = derived
        if shape.rope.rope_type == "longrope" and rules["longrope_default"] == "original":
            length = shape.rope.original_max_position_embeddings or derived
            if length < derived:
                notes.append(f"LongRoPE: the default is the original context of {length}, not {derived}.")
        return Length(length, derived, key, auto, tuple(notes))
    if wanted > derived:
        stated = dict(shape.position_limits).get("model_max_length")
        if stated is None or wanted > stated:
            if not _allows_long(args):
                refuse(rules, "refuse_length", length=wanted, key=key, derived=text, model_max_length=stated)
            notes.append(f"VLLM_ALLOW_LONG_MAX_MODEL_LEN lets the context exceed the config's {derived}.")
    return Length(wanted, derived, key, False, tuple(notes))


def _limit(shape: ModelShape, rules: Rules) -> tuple[int | None, str]:
    """The smallest limit in the config, or ``model_max_length`` where it wins; None without any."""
    limit: int | None = None
    key = "None"
    for name, tokens in shape.position_limits:
        if name == "max_target_positions" and not rules["reads_max_target_positions"]:
            continue
        if limit is None or tokens < limit:
            limit, key = tokens, name
    stated = dict(shape.position_limits).get("model_max_length")
    if stated and rules["model_max_length_wins"]:
        return stated, "model_max_length"
    return limit, key


def _scaled(limit: int, key: str, args: EngineArgs, shape: ModelShape, rules: Rules) -> tuple[int, str]:
    """The limit after RoPE scaling, in tokens and as vLLM prints it (``131072.0`` when it multiplied)."""
    rope = shape.rope
    exempt = "gemma3" in shape.model_type and rules["gemma3_rope_unscaled"]
    always_float = rules["derived_length_is_float"] == "rope" and key not in _NO_ROTARY and not exempt
    if rope.rope_type == "default" or exempt or rope.rope_type in rules["rope_types_unscaled"]:
        return limit, str(float(limit)) if always_float else str(limit)
    if args.disable_sliding_window and rules["rope_without_window_refused"]:
        refuse(rules, "refuse_window_off")
    base = limit
    if rope.rope_type == "yarn" and rules["yarn_multiplies"]:
        base = rope.original_max_position_embeddings or limit
    scaled = base * (rope.factor or 1.0)
    return int(scaled), str(float(scaled)) if always_float else _as_written(scaled)


def _as_written(value: float) -> str:
    """A product of a JSON integer and a JSON factor: whole factors are mostly written as floats."""
    return str(value)


def _allows_long(args: EngineArgs) -> bool:
    return args.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0").strip().lower() in ("1", "true")
