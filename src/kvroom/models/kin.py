"""A packaged model of the same architecture, for a model whose own config is not at hand.

Most ids that people serve are copies of a few published models: re-uploads, fine-tunes under a folder's
name, quantised versions. Their names say which: ``casperhansen/Llama-3.1-8B-Instruct-AWQ`` or
``/models/Qwen3-8B``. What is found here is an assumption, and every plan that rests on it says so.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kvroom.models import catalogue

_STORED = (
    (("nvfp4",), "nvfp4"),
    (("mxfp4",), "mxfp4"),
    (("awq",), "awq"),
    (("gptq",), "gptq"),
    (("bnb", "bitsandbytes"), "bitsandbytes"),
    (("gguf",), "gguf"),
    (("fp8",), "fp8"),
    (("w4a16", "int4", "4bit", "autoround"), "w4a16"),
    (("w8a8", "int8", "8bit"), "w8a8"),
)
"""Words of a name and the storage they mean; the first that occurs counts."""
_OWN_STORAGE = frozenset(["redhatai", "neuralmagic", "nm-testing"])
"""Organisations that quantise with llm-compressor, by their own recipes, whatever another's quantised copy leaves."""
_GGUF_TYPE = re.compile(r"(?<![a-z0-9])i?q\d_(?:[01]|k(?:_[sml])?|xxs|xs|nl)(?![a-z0-9])")
_DATE = re.compile(r"\d{4}")
_NOISE = frozenset(
    "meta hf bf16 fp16 unsloth quantized quant dynamic static block channel tensor kv marlin g128 g32 g64 sym qat "
    "ct round auto mlx vllm local model checkpoint merged main snapshot".split()
) | {word for words, _ in _STORED for word in words}
_STORAGE_WORDS = frozenset(word for words, _ in _STORED for word in words)
_TUNING = frozenset(["instruct", "chat", "it", "base", "pt", "sft", "dpo"])


@dataclass(frozen=True, slots=True)
class Kin:
    """The packaged model that stands in, and what the name says about storage and context."""

    entry: catalogue.Entry
    quantization: str | None
    """Name for ``assume_quantization``, None where the name says nothing or the stand-in is stored so."""
    positions: int | None = None
    """max_position_embeddings where it differs from the stand-in's."""


def find_kin(name: str) -> Kin | None:
    """The packaged model of the architecture that ``name`` (an id or a path) speaks of, None when unclear."""
    packed = _GGUF_TYPE.search(name.lower())
    words = _words(_GGUF_TYPE.sub("gguf", name.lower()))
    if len(words) < 2:
        return None
    stored = next((kind for marks, kind in _STORED if set(marks) & set(words)), None)
    if packed is not None:
        stored = f"gguf:{packed.group().upper()}"
    plain = [word for word in words if word not in _NOISE]
    known = _published().get("-".join(plain))
    if known is not None:
        entry = catalogue.find(str(known["like"]))
        return Kin(entry, stored, known.get("positions")) if entry else None
    chosen = _by_words().get(_essence(plain))
    if chosen and stored is not None and name.partition("/")[0].lower() in _OWN_STORAGE:
        plain_copies = tuple(each for each in chosen if not set(_words(each)) & _STORAGE_WORDS)
        chosen = plain_copies or chosen
    entry = catalogue.find(_likest(chosen, words)) if chosen else None
    if entry is None:
        return None
    same = stored is not None and stored in " ".join(_words(entry.name))
    return Kin(entry, None if same else stored)


def _words(name: str) -> list[str]:
    bare = re.split(r"[/\\]", name.rstrip("/\\"))[-1].lower()
    return [word for word in re.split(r"[-_\s]+", bare.removesuffix(".gguf")) if word]


def _essence(words: list[str]) -> frozenset[str]:
    return frozenset(word for word in words if not _DATE.fullmatch(word)) - _TUNING - _NOISE


@cache
def _published() -> dict[str, dict[str, Any]]:
    text = files("kvroom.data.models").joinpath("kin.json").read_text("utf-8")
    models: dict[str, dict[str, Any]] = json.loads(text)["models"]
    return models


@cache
def _by_words() -> dict[frozenset[str], tuple[str, ...]]:
    found: dict[frozenset[str], tuple[str, ...]] = {}
    for name in catalogue.index():
        key = _essence(_words(name))
        found[key] = (*found.get(key, ()), name)
    return found


def _likest(names: tuple[str, ...], words: list[str]) -> str:
    """Of packaged models with the same essential words, the one whose other words differ least."""
    return min(names, key=lambda name: (len(set(_words(name)) ^ set(words)), name))
