"""Reading a config.json without trusting it: every value is checked as it is taken.

A config may come from anywhere, so a field can be missing, of the wrong type, negative or absurd.
``Fields`` raises BadConfig with the field's name and what was found; nothing else in kvroom touches
the raw mapping.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from kvroom.errors import BadConfig

LIMIT = 1 << 40
"""No count in a real config comes near this; larger ones are refused."""
NESTED_TEXT = ("text_config", "llm_config", "language_config", "thinker_config", "talker_config", "decoder")
"""Where multimodal configs keep the language model, in the order tried."""


class Fields:
    """One level of a config.json, named ``where`` in errors."""

    def __init__(self, raw: Mapping[str, Any], where: str = "config.json") -> None:
        if not isinstance(raw, Mapping):
            raise BadConfig(f"{where} is not a JSON object but a {type(raw).__name__}.")
        self.raw = raw
        self.where = where

    def __contains__(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            value = self.raw.get(name)
            if value is not None:
                return name, value
        return names[0], None

    def maybe_int(self, *names: str, low: int = 0) -> int | None:
        """The first of ``names`` that is present, as an integer >= ``low``; None when none is."""
        name, value = self._first(names)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadConfig(f"{self.where}: '{name}' should be an integer, not {_show(value)}.")
        if not low <= value <= LIMIT:
            raise BadConfig(f"{self.where}: '{name}' is {_show(value)}, outside {low}..{LIMIT}.")
        return value

    def int(self, *names: str, default: int | None = None, low: int = 0) -> int:
        """As ``maybe_int``, but a missing field takes ``default`` or, without one, is an error."""
        value = self.maybe_int(*names, low=low)
        if value is not None:
            return value
        if default is None:
            raise BadConfig(
                f"{self.where} has no '{names[0]}', which the memory arithmetic needs.",
                "Is it the config.json of a language model, and complete?",
            )
        return default

    def float(self, *names: str, default: float = 0.0) -> float:
        """The first of ``names`` that is present, as a finite number."""
        name, value = self._first(names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1e15 < value < 1e15:
            raise BadConfig(f"{self.where}: '{name}' should be a number, not {_show(value)}.")
        return float(value)

    def str(self, *names: str, default: str = "") -> str:
        """The first of ``names`` that is present, as a text of sensible length."""
        name, value = self._first(names)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > 500:
            raise BadConfig(f"{self.where}: '{name}' should be a short text, not {_show(value)}.")
        return value

    def bool(self, *names: builtins.str, default: bool = False) -> bool:
        """The first of ``names`` that is present, as true or false."""
        name, value = self._first(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadConfig(f"{self.where}: '{name}' should be true or false, not {_show(value)}.")
        return value

    def list(self, *names: builtins.str) -> list[Any]:
        """The first of ``names`` that is present, as a list (empty when none is)."""
        name, value = self._first(names)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > 100_000:
            raise BadConfig(f"{self.where}: '{name}' should be a list, not {_show(value)}.")
        return value

    def sub(self, *names: builtins.str) -> Fields | None:
        """The object under the first of ``names`` that is present."""
        name, value = self._first(names)
        return None if value is None else Fields(value, f"{self.where}: {name}")

    @property
    def text(self) -> Fields:
        """The language model's own fields: the nested text config laid over this level, or this level."""
        fields = self
        for _ in range(3):
            for name in NESTED_TEXT:
                inner = fields.raw.get(name)
                if isinstance(inner, Mapping) and ("hidden_size" in inner or "text_config" in inner):
                    fields = Fields({**fields.raw, name: None, **inner}, f"{fields.where}: {name}")
                    break
            else:
                break
        return fields


def _show(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
