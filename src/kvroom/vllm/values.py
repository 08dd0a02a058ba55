"""Reading the value of one option: vLLM's number suffixes, booleans, JSON and choices.

Every function raises UsageError that names the option, the value and what would be allowed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from kvroom.errors import UsageError
from kvroom.vllm.flags import Flag

_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])", re.ASCII)
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
_BARE_SUFFIXED = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b", re.ASCII)
_LONGEST_NUMBER = 30
_LONGEST_JSON = 1_000_000


def refuse(option: str, value: object, allowed: str) -> NoReturn:
    """Raise the UsageError of a bad value: ``allowed`` completes "Allowed: ..."."""
    text = str(value)
    shown = text if len(text) <= 80 else text[:77] + "..."
    raise UsageError(f"{option}: '{shown}' is not allowed.", f"Allowed: {allowed}.")


def human_int(text: str, option: str = "value") -> int:
    """The number that ``text`` writes; ``k m g t`` count in thousands, ``K M G T`` in 1024s.

    Mirrors utils/argparse_utils.py: human_readable_int.

    >>> human_int("32k"), human_int("32K"), human_int("25.6k")
    (32000, 32768, 25600)
    """
    text = text.strip()
    match = _SUFFIXED.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if match:
        number, suffix = match.groups()
        if suffix in _DECIMAL:
            return int(float(number) * _DECIMAL[suffix])
        if "." in number:
            cure = f"a whole number before {suffix} (1024s), or {number}{suffix.lower()} (thousands)"
            refuse(option, text, cure)
        return int(number) * _BINARY[suffix]
    return plain_int(text, option, "a whole number, with k m g t for thousands or K M G T for 1024s")


def plain_int(text: str, option: str, allowed: str = "a whole number") -> int:
    """``text`` as an integer of reasonable length."""
    try:
        if len(text) > _LONGEST_NUMBER:
            raise ValueError
        return int(text)
    except ValueError:
        refuse(option, text, allowed)


def real(text: str, option: str) -> float:
    """``text`` as a finite number."""
    try:
        value = float(text)
    except ValueError:
        refuse(option, text, "a number")
    if not math.isfinite(value):
        refuse(option, text, "a finite number")
    return value


def boolean(text: str, option: str) -> bool:
    """``true`` or ``false``, as old releases wrote their switches."""
    lowered = text.lower()
    if lowered not in ("true", "false"):
        refuse(option, text, "true or false")
    return lowered == "true"


def json_value(text: str, option: str, *, suffixed_numbers: bool = False) -> Any:
    """``text`` as JSON; ``suffixed_numbers`` also lets bare numbers carry ``k`` to ``T``."""
    if len(text) > _LONGEST_JSON:
        refuse(option, text, f"JSON of at most {_LONGEST_JSON} characters")
    if suffixed_numbers:
        parts = _QUOTED.split(text)
        for at in range(0, len(parts), 2):
            parts[at] = _BARE_SUFFIXED.sub(lambda m: str(human_int(m.group(), option)), parts[at])
        text = "".join(parts)
    try:
        return json.loads(text)
    except RecursionError:
        refuse(option, text, "JSON that is not nested so deeply")
    except ValueError as error:
        where = f" (character {error.pos + 1}: {error.msg})" if isinstance(error, json.JSONDecodeError) else ""
        refuse(option, text, f"valid JSON{where}; in a shell, put it in single quotes")


def json_mapping(text: str, option: str, *, suffixed_numbers: bool = False) -> dict[str, Any]:
    """``text`` as a JSON object."""
    value = json_value(text, option, suffixed_numbers=suffixed_numbers)
    if not isinstance(value, dict):
        refuse(option, text, 'a JSON object such as {"key": 1}')
    return value


def read_value(flag: Flag, option: str, texts: Sequence[str], *, suffixed_json: bool = False) -> Any:
    """The value of ``flag`` as written after ``option``; None where the text says None or nothing."""
    form = flag.form
    if form in ("strs", "ints"):
        if not texts:
            refuse(option, "", "one or more values")
        for text in texts:
            _check_choice(flag, option, text)
        return tuple(plain_int(t, option) for t in texts) if form == "ints" else tuple(texts)
    if form == "opt_str":
        return texts[0] if texts else True
    text = texts[0]
    if text in ("", "None"):
        return None
    if flag.choices:
        _check_choice(flag, option, text)
    if form == "str":
        return text
    if form == "int":
        return plain_int(text, option)
    if form == "human_int":
        return human_int(text, option)
    if form == "human_int_or_auto":
        return -1 if text.strip() == "-1" or text.strip().lower() == "auto" else human_int(text, option)
    if form == "float":
        return real(text, option)
    if form == "bool_text":
        return boolean(text, option)
    if form == "json_or_str" and not text.lstrip().startswith("{"):
        return text
    return json_value(text, option, suffixed_numbers=suffixed_json)


def _check_choice(flag: Flag, option: str, text: str) -> None:
    if flag.choices and text not in flag.choices:
        shown = ", ".join(flag.choices[:40])
        refuse(option, text, shown)
