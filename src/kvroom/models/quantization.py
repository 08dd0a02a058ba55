"""How a checkpoint is stored: which scheme each module has, read from its quantisation config."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any

from kvroom.models.fields import Fields
from kvroom.models.quantization_readers import READERS, Reading, method_of
from kvroom.models.schemes import ONLINE, Scheme, named_scheme

ROOTS = re.compile(r"(?:(?:guessed|model|language_model|backbone|transformer)\.)*")
"""Leading parts of a module's path in which checkpoints and releases differ."""
TOWERS = ("visual", "vision", "mm_projector", "multi_modal", "audio", "patch_merge")


def bare(name: str) -> str:
    """``name`` without its leading ``model.`` and ``language_model.``, in which spellings differ.

    >>> bare("model.language_model.layers.0.mlp.gate_proj")
    'layers.0.mlp.gate_proj'
    """
    found = ROOTS.match(name)
    return name[found.end() :] if found else name


class Matcher:
    """Answers whether a module's path is among ``patterns``, in time independent of their number."""

    def __init__(self, patterns: Iterable[str], *, substring: bool = False) -> None:
        self._exact: set[str] = set()
        self._sizes: set[int] = set()
        """How many components the exact names have."""
        self._starts: dict[int, set[str]] = {}
        self._parts: list[str] = []
        expressions: list[str] = []
        for pattern in patterns:
            if pattern.startswith("re:"):
                expressions.append(pattern[3:])
                continue
            name = bare(pattern)
            stem = name.removesuffix("*").removesuffix(".")
            if "*" in stem or "?" in stem or "[" in stem:
                expressions.append(translate(pattern))
                expressions.append(translate(name))
            elif name.endswith("*"):
                self._starts.setdefault(len(stem), set()).add(stem)
            elif substring:
                self._parts.append(name)
            else:
                self._exact.add(name)
                self._sizes.add(name.count(".") + 1)
        self._expressions = _compiled(expressions)

    def __call__(self, name: str) -> bool:
        """Whether ``name`` (bare, with the layer's number) or a module around it is listed."""
        for length, stems in self._starts.items():
            if name[:length] in stems:
                return True
        if self._exact:
            parts = name.split(".")
            if name in self._exact or not self._exact.isdisjoint(parts):
                return True
            for size in self._sizes:
                if 1 < size < len(parts) and (
                    ".".join(parts[:size]) in self._exact or ".".join(parts[-size:]) in self._exact
                ):
                    return True
        if any(part in name for part in self._parts):
            return True
        return bool(self._expressions) and any(
            expression.match(spelling)
            for expression in self._expressions
            for spelling in (
                name,
                f"model.{name}",
                f"model.language_model.{name}",
                f"language_model.model.{name}",
            )
        )


def _compiled(expressions: list[str]) -> list[re.Pattern[str]]:
    compiled = []
    for text in expressions[:2000]:
        try:
            compiled.append(re.compile(text))
        except re.error:  # a checkpoint's pattern that vLLM itself would refuse
            continue
    return compiled


@dataclass(frozen=True, eq=False)
class Quantization:
    """A checkpoint's quantisation. Compared and hashed by identity."""

    method: str
    """vLLM's name: ``fp8``, ``awq``, ``gptq``, ``compressed-tensors``, ``modelopt_fp4``, ..."""
    groups: tuple[tuple[tuple[str, ...], Scheme], ...]
    """(targets, scheme), the first that matches wins; no targets: every linear layer."""
    ignored: tuple[str, ...] = ()
    """Modules that stay in the model's dtype, as names, ``*`` patterns or ``re:`` expressions."""
    kv_cache_dtype_hint: str | None = None
    """``fp8`` or ``nvfp4`` where the checkpoint asks for such a KV cache."""
    experts_only: bool = False
    """Only routed experts are quantised (gpt-oss)."""
    quantises_head: bool = False
    """The output head may be quantised too."""
    plain_towers: bool = False
    """Vision and audio towers stay in the model's dtype."""
    substring: bool = False
    """``ignored`` holds parts of names (AWQ)."""
    assumed: bool = False
    experts: Scheme | None = None
    """The routed experts' own scheme, where it is not the other layers'."""
    unlisted: bool = False
    """The config names no exception, as an abridged copy would: some modules may be plain after all."""
    _matchers: dict[str, Any] = field(default_factory=dict, repr=False)

    def scheme_for(self, names: tuple[str, ...], *, expert: bool = False, head: bool = False) -> Scheme | None:
        """The scheme of the module that the checkpoint calls by any of ``names``; None: plain weights."""
        if (self.experts_only and not expert) or (head and not self.quantises_head):
            return None
        matchers = self._matchers
        if not matchers:
            matchers["ignored"] = Matcher(self.ignored, substring=self.substring)
            matchers["groups"] = [(Matcher(t) if t else None, scheme) for t, scheme in self.groups]
        if any(matchers["ignored"](name) for name in names):
            return None
        if expert and self.experts is not None:
            return self.experts
        for matcher, scheme in matchers["groups"]:
            if matcher is None or any(matcher(name) for name in names):
                found: Scheme = scheme
                return found
        return None

    @property
    def scheme(self) -> Scheme | None:
        """The scheme of most modules: the last group's, which has the fewest targets or none."""
        return self.groups[-1][1] if self.groups else None


def read_quantization(fields: Fields, hf_quant_config: Mapping[str, Any] | None = None) -> Quantization | None:
    """The quantisation that a checkpoint declares, None for plain weights.

    ``fields`` is the whole config.json; ``hf_quant_config`` is the hf_quant_config.json beside it (ModelOpt),
    used where config.json says nothing. Raises BadConfig for wrong types.
    """
    config = fields.sub("quantization_config", "compression_config") or fields.text.sub("quantization_config")
    if config is None:
        if hf_quant_config is None:
            return None
        outer = Fields(hf_quant_config, "hf_quant_config.json")
        config = outer.sub("quantization") or outer
    method = method_of(config)
    reader = READERS.get(method)
    if reader is None:
        return None
    reading: Reading = reader(config, fields.text)
    if not reading.groups:
        return None
    ignored = tuple(dict.fromkeys(str(name) for name in reading.ignored))
    return Quantization(
        method=reading.method or method,
        groups=tuple(reading.groups),
        ignored=ignored,
        kv_cache_dtype_hint=reading.kv_hint,
        experts_only=reading.experts_only,
        quantises_head=reading.head,
        plain_towers=reading.plain_towers or any(tower in name for name in ignored for tower in TOWERS),
        substring=reading.substring,
        experts=reading.experts,
        unlisted=reading.unlisted and not ignored,
    )


def unread_method(fields: Fields) -> str:
    """The method that a checkpoint's config names where no reader knows it, else an empty text."""
    config = fields.sub("quantization_config", "compression_config") or fields.text.sub("quantization_config")
    if config is None or method_of(config) in READERS:
        return ""
    return config.str("quant_method").lower()


def assume_quantization(name: str) -> Quantization:
    """The quantisation that ``--assume-quantization NAME`` prices: every linear layer, no towers, no head.

    Raises UsageError for an unknown name.
    """
    method, scheme = named_scheme(name)
    return Quantization(
        method=method,
        groups=(((), scheme),),
        ignored=("re:.*[.]gate$", "re:.*shared_expert_gate$"),
        quantises_head=scheme.format == "gguf",
        plain_towers=True,
        experts_only=scheme.format == "mxfp4",
        assumed=True,
    )


def online_quantization(name: str) -> Quantization | None:
    """What ``--quantization NAME`` makes of a plain checkpoint; None where it only names a format.

    >>> online_quantization("fp8").scheme.online
    True
    """
    entry = ONLINE.get(name.lower().replace("-", "_"))
    if entry is None:
        return None
    method, scheme = entry
    return Quantization(
        method=method,
        groups=(((), scheme),),
        experts_only=method in ("experts_int8", "mxfp4"),
    )
