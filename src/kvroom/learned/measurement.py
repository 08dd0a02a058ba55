"""A measurement: what one start measured, under the key by which a later launch finds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from kvroom.errors import KvroomError, UsageError
from kvroom.redaction import anonymous
from kvroom.vllm.releases import Release, parse_release

SIZES = ("weights", "activation", "other", "cuda_graphs", "available", "total", "graphs_taken")
"""What is kept, in bytes per GPU; ``total`` is torch's, ``graphs_taken`` what the capture took in the end."""
_MOST = 1 << 50
"""Bytes that no GPU has."""
_LONGEST = 400
"""Characters of one text; launches have at most as many words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one start measured. Nothing in it says where or by whom it was started."""

    gpu: str
    """The card's name in the catalogue, or the driver's."""
    gpus: int
    """How many the launch spanned."""
    release: Release
    model: str
    """For people; a model in a folder goes by the folder's own name."""
    shape: str
    """The model's fingerprint (see ``learned.key``)."""
    words: tuple[str, ...]
    """The flags that move memory, with what the release filled in for those that matter most."""
    env: Mapping[str, str] = field(default_factory=dict)
    backend: str = ""
    """The attention backend, empty where nobody knows."""
    sizes: Mapping[str, int]
    """Bytes per GPU, by the names of ``SIZES``."""
    learned: str
    """When it was kept: UTC, ISO 8601 to the second."""

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that say the same of the same measurement everywhere."""
        content = {name: value for name, value in self.data().items() if name not in {"id", "learned"}}
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def data(self) -> dict[str, Any]:
        """The measurement for JSON, without its id."""
        return {
            "gpu": self.gpu,
            "gpus": self.gpus,
            "vllm_version": str(self.release),
            "model": self.model,
            "shape": self.shape,
            "flags": list(self.words),
            "env": dict(self.env),
            "attention_backend": self.backend or None,
            "sizes": {name: self.sizes[name] for name in SIZES if name in self.sizes},
            "learned": self.learned,
        }


def cleaned(measurement: Measurement) -> Measurement:
    """``measurement`` as it may be kept: no text in it holds a secret, a person or a place."""
    return replace(
        measurement,
        gpu=anonymous(measurement.gpu),
        model=anonymous(measurement.model),
        shape=anonymous(measurement.shape),
        words=tuple(map(anonymous, measurement.words)),
        env={anonymous(name): anonymous(value) for name, value in measurement.env.items()},
        backend=anonymous(measurement.backend),
    )


def measurement_of(data: Any) -> Measurement:
    """The measurement that ``data`` describes, from a file or the store.

    Raises UsageError, with what is wrong, for anything that is none: such data may come from anywhere.
    """
    if not isinstance(data, Mapping):
        raise _wrong("it is no object")
    words = data.get("flags", [])
    env = data.get("env") or {}
    if not isinstance(words, list) or len(words) > _LONGEST or not isinstance(env, Mapping) or len(env) > _LONGEST:
        raise _wrong("flags is no list, or env no object")
    try:
        release = parse_release(_text(data, "vllm_version"))
    except KvroomError as error:
        raise _wrong(error.problem) from None
    return Measurement(
        gpu=_text(data, "gpu"),
        gpus=_whole(data.get("gpus"), "gpus", least=1, most=1 << 20),
        release=release,
        model=_text(data, "model"),
        shape=_text(data, "shape"),
        words=tuple(_text({"flags": word}, "flags") for word in words),
        env={_text({"env": name}, "env"): _text({"env": value}, "env") for name, value in env.items()},
        backend=_text(data, "attention_backend") if data.get("attention_backend") else "",
        sizes=_sizes(data.get("sizes")),
        learned=_moment(data.get("learned")),
    )


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value or len(value) > _LONGEST:
        raise _wrong(f"{name} is no text of up to {_LONGEST} characters")
    return value


def _moment(value: Any) -> str:
    try:
        return datetime.fromisoformat(value).astimezone(UTC).isoformat(timespec="seconds")
    except (TypeError, ValueError, OverflowError):
        raise _wrong("learned is no moment in ISO 8601") from None


def _whole(value: Any, name: str, *, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _wrong(f"{name} is no whole number from {least:,} to {most:,}")
    return value


def _sizes(data: Any) -> dict[str, int]:
    if not isinstance(data, Mapping) or not data:
        raise _wrong("it has no sizes")
    unknown = [name for name in data if name not in SIZES]
    if unknown:
        raise _wrong(f"no size is called {str(unknown[0])[:40]!r}")
    return {
        name: _whole(value, name, least=-_MOST if name == "available" else 0, most=_MOST)
        for name, value in data.items()
    }


def _wrong(what: str) -> UsageError:
    return UsageError(f"That is no measurement: {what}.", "Give what `kvroom learned --export` wrote.")
