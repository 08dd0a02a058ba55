"""What a config.json leaves out, filled in as the configuration class would fill it in.

Published configs often hold only what differs from their class (Gemma 3 gives no vocabulary, a vision
model's ``text_config`` may be three lines), and older classes store a field under another name (GPT-2's
``n_embd``). vLLM sees the class's view; so does everything that reads a config here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from kvroom.errors import BadConfig
from kvroom.models.fields import NESTED_TEXT

MAX_DEPTH = 4
"""Nested configs below the top: thinker_config -> text_config is the deepest published."""
PARTS = (*NESTED_TEXT, "vision_config", "audio_config", "encoder")


@cache
def class_defaults() -> Mapping[str, Mapping[str, Any]]:
    """model_type -> the configuration class's ``fields``, ``names`` and ``parts`` (see the file's source)."""
    text = files("kvroom.data.models").joinpath("defaults.json").read_text("utf-8")
    types: dict[str, Mapping[str, Any]] = json.loads(text)["types"]
    return types


def with_class_defaults(raw: Mapping[str, Any], model_type: str = "", depth: int = 0) -> dict[str, Any]:
    """``raw`` with its class's defaults and names, and the same for the configs nested in it.

    ``model_type`` is what the surrounding config expects where ``raw`` does not say it itself.
    Raises BadConfig when configs are nested without end.
    """
    if depth > MAX_DEPTH:
        raise BadConfig("config.json: configurations are nested in each other without end.")
    named = raw.get("model_type")
    kind = class_defaults().get(named if isinstance(named, str) and named else model_type, {})
    fields = kind.get("fields", {})
    if "hidden_size" in fields and any(isinstance(raw.get(name), Mapping) for name in NESTED_TEXT):
        fields = {}  # a text model's class named around a nested text config: the nested one counts
    filled: dict[str, Any] = {**fields, **raw}
    if named is None and model_type:
        filled["model_type"] = model_type
    for name, stored in kind.get("names", {}).items():
        value = raw.get(stored, raw.get(name, filled.get(stored)))
        if value is not None:
            filled[name] = filled[stored] = value
    parts = kind.get("parts", {})
    for part in PARTS:
        inner = filled.get(part, _flat(raw) if part == "text_config" and part in parts else None)
        if isinstance(inner, Mapping):
            filled[part] = with_class_defaults(inner, parts.get(part, ""), depth + 1)
    return filled


def _flat(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language fields of an older vision-language config (Qwen2-VL), which keeps them at the top."""
    if "num_hidden_layers" not in raw:
        return {}
    apart = {"model_type", "architectures", *PARTS}
    return {name: value for name, value in raw.items() if name not in apart}


def language_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The innermost language config of ``config`` (itself for a text model), without the outer fields."""
    for _ in range(MAX_DEPTH):
        for name in NESTED_TEXT:
            inner = config.get(name)
            if isinstance(inner, Mapping) and ("hidden_size" in inner or "text_config" in inner):
                config = inner
                break
        else:
            break
    return config


def merge(base: Mapping[str, Any], changes: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """``base`` with ``changes`` laid over it, objects merged key by key (vLLM's ``--hf-overrides``).

    Raises BadConfig when ``changes`` are nested absurdly deep.
    """
    if depth > 16:
        raise BadConfig("The overrides of the model's config are nested too deeply.")
    merged = dict(base)
    for name, value in changes.items():
        old = merged.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[name] = merge(old, value, depth + 1) if both else value  # type: ignore[arg-type]
    return merged
