"""The packaged configs of published models, so that a plan needs no network.

Each entry is one small file, read when it is asked for, and says where it was copied from (``source``)
and how good the copy is (``grade``: A a published config.json; A-excerpt the same, trimmed by its keeper;
A-derived a quantised sibling's less its quantisation; B a configuration class's defaults that fit the
checkpoint; C converted from another tool's field names).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from kvroom.models.parse import parse_object

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDED = re.compile(r"\[([\d,-]+)\]")
"""``layers.[0-59,61].mlp``: one name for many, as the catalogue's files write long lists."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One packaged model: its id, its config.json and what is known about the copy."""

    name: str
    config: Mapping[str, Any]
    hf_quant_config: Mapping[str, Any] | None
    source: str
    grade: str
    total_params: int | None
    """Parameters counted from the config by transformers, where it knows the class."""


@cache
def index() -> Mapping[str, str]:
    """Model id -> file name, for every packaged model."""
    names: dict[str, str] = json.loads(_read("index.json"))
    return names


@cache
def _by_key() -> Mapping[str, str]:
    """Lower-case id, and lower-case bare name where only one model has it -> id."""
    keys: dict[str, str] = {}
    bare: dict[str, list[str]] = {}
    for name in index():
        keys[name.lower()] = name
        bare.setdefault(name.lower().partition("/")[2], []).append(name)
    return {key: ids[0] for key, ids in bare.items() if len(ids) == 1} | keys


def resolve(name: str) -> str | None:
    """The catalogue's id for ``name``, whatever its case, with or without the organisation."""
    return _by_key().get(name.strip().strip("/").lower())


@cache
def find(name: str) -> Entry | None:
    """The packaged model called ``name``, None when there is none."""
    known = resolve(name)
    if known is None:
        return None
    raw = parse_object(_read(index()[known]), f"the catalogue's {known}")
    return Entry(
        name=known,
        config=unfold(raw["config"]),
        hf_quant_config=unfold(raw["hf_quant_config"]) if "hf_quant_config" in raw else None,
        source=str(raw["source"]),
        grade=str(raw["grade"]),
        total_params=raw.get("total_params"),
    )


def nearest(name: str, limit: int = 5) -> tuple[str, ...]:
    """The ids most like ``name``, best first; empty when none is close."""
    import difflib

    wanted = name.lower()[:200]
    bare = wanted.rpartition("/")[2]
    keys = {known.lower(): known for known in index()} | {known.lower().partition("/")[2]: known for known in index()}
    close = difflib.get_close_matches(wanted, keys, n=limit, cutoff=0.6)
    close += difflib.get_close_matches(bare, keys, n=limit, cutoff=0.6)
    return tuple(dict.fromkeys(keys[key] for key in close))[:limit]


def unfold(value: Any) -> Any:
    """``value`` with folded module names written out, the inverse of the catalogue's packing.

    >>> unfold(["lm_head", "layers.[0-1].mlp"])
    ['lm_head', 'layers.0.mlp', 'layers.1.mlp']
    """
    if isinstance(value, list):
        return [each for item in value for each in (_names(item) if isinstance(item, str) else [unfold(item)])]
    if isinstance(value, dict):
        return {name: unfold(each) for key, each in value.items() for name in _names(key)}
    return value


def _names(text: str) -> list[str]:
    folded = FOLDED.search(text)
    if folded is None:
        return [text]
    before, after = text[: folded.start()], _names(text[folded.end() :])
    return [f"{before}{number}{tail}" for number in _numbers(folded.group(1)) for tail in after]


def _numbers(ranges: str) -> list[int]:
    numbers: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _read(name: str) -> str:
    return files("kvroom.data.models").joinpath("catalogue", name).read_text("utf-8")
