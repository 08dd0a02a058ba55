"""A config.json's bytes -> a mapping, or one BadConfig: the only place that decodes JSON from outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvroom.errors import BadConfig
from kvroom.units import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 64 * MIB
"""Larger files are no config.json (the largest published one, listing every expert, has 3 MB)."""
_MOST_PLAIN = 16 * MIB
"""Longer texts (only indexes of weights are) must be plain ASCII, which takes the least memory."""
_MOST_VALUES = 1_000_000
"""Commas and brackets, and so about values; the index of a model of 200,000 tensors has as many."""


def parse_object(data: bytes | str, where: str = "config.json") -> Mapping[str, Any]:
    """The JSON object in ``data``, named ``where`` in errors.

    NaN and Infinity are let through, since published Mamba configs hold them in fields that nothing
    here reads; ``Fields`` refuses them where they would count. Raises BadConfig for everything else
    that is not one complete JSON object of sensible size and depth.
    """
    if len(data) > MAX_BYTES:
        raise BadConfig(f"{where} is {len(data) // MIB} MiB long, which no model configuration is.")
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        if len(text) > _MOST_PLAIN and not (text.isascii() and "\\" not in text):
            raise BadConfig(f"{where} is {len(text) // MIB} MiB of text, which no model configuration is.")
        if len(text) > _MOST_VALUES and sum(map(text.count, ",[{")) > _MOST_VALUES:
            raise BadConfig(f"{where} holds millions of values, which no model configuration does.")
        value = json.loads(text)
    except UnicodeDecodeError as error:
        raise BadConfig(f"{where} is not UTF-8 text (byte {error.start}).", _CURE) from None
    except RecursionError:
        raise BadConfig(f"{where} is nested too deeply to be a model configuration.") from None
    except json.JSONDecodeError as error:
        raise BadConfig(
            f"{where} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}.", _CURE
        ) from None
    except ValueError:  # an integer of more digits than Python converts
        raise BadConfig(f"{where} holds a number with thousands of digits.") from None
    if not isinstance(value, dict):
        raise BadConfig(f"{where} is not a JSON object but a {type(value).__name__}.", _CURE)
    return value


_CURE = "Is it the model's config.json, and was it downloaded completely?"
