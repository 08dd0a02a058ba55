"""Public checkpoints of a model that are stored in another way, as the Hugging Face hub lists them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvroom.errors import UnknownModel, UsageError

_MOST = 200
_WORDS = (
    ("nvfp4", r"nvfp4|fp4-?modelopt"),
    ("mxfp4", r"mxfp4"),
    ("gguf", r"gguf"),
    ("awq", r"awq"),
    ("gptq", r"gptq"),
    ("bitsandbytes", r"bnb|bitsandbytes|nf4"),
    ("w8a8", r"w8a8|int8"),
    ("w4a16", r"w4a16|int4|quantized\.w4"),
    ("fp8-dynamic", r"fp8"),
)
"""What names say, the most telling first."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One repository on the hub."""

    repo: str
    tags: tuple[str, ...] = ()
    downloads: int = 0


class Listing(Protocol):
    """What lists the checkpoints that say they are quantised from another."""

    def quantized(self, model: str) -> Iterable[Listed]:
        """Repositories that name ``model`` as their base, most downloaded first; UnknownModel where nobody can say."""


class HubListing:
    """The hub through ``huggingface_hub``; only the model's name is sent."""

    def __init__(self, api: Any = None) -> None:
        self._api = api

    def quantized(self, model: str) -> Iterable[Listed]:
        """As the protocol says."""
        api = self._api if self._api is not None else _api()
        try:
            found = api.list_models(filter=f"base_model:quantized:{model}", sort="downloads", limit=_MOST)
            return [Listed(each.id, tuple(each.tags or ()), each.downloads or 0) for each in found]
        except Exception as error:  # noqa: BLE001 - what the client raises for a network has no common base
            raise UnknownModel(
                f"The hub could not be asked for checkpoints of {model} ({type(error).__name__}).",
                "Check the network and HF_ENDPOINT, or leave out --find.",
            ) from None


def found_for(model: str, names: Sequence[str], listing: Listing) -> dict[str, Listed]:
    """The most downloaded checkpoint of ``model`` for each of the ways to store weights ``names`` that has one."""
    best: dict[str, Listed] = {}
    for listed in sorted(listing.quantized(model), key=lambda each: -each.downloads):
        kind = kind_of(listed)
        for name in names:
            if kind is not None and (name == kind or (kind == "gguf" and name.startswith("gguf:"))):
                best.setdefault(name, listed)
    return best


def kind_of(listed: Listed) -> str | None:
    """How a repository's weights are stored by its name, else by its tags; None where neither says.

    >>> kind_of(Listed("someone/Qwen3-8B-AWQ")), kind_of(Listed("someone/Qwen3-8B"))
    ('awq', None)
    """
    for text in (listed.repo.partition("/")[2].lower(), " ".join(listed.tags).lower()):
        for kind, words in _WORDS:
            if re.search(rf"(?:^|[^a-z0-9])(?:{words})(?:[^a-z]|$)", text):
                return kind
    return None


def refuse_offline(offline: bool) -> None:
    """Raise UsageError where the hub may not be asked."""
    if offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "TRUE", "YES", "ON"}:
        raise UsageError(
            "--find asks the hub, and kvroom is offline.", "Leave out --offline (HF_HUB_OFFLINE), or --find."
        )


def _api() -> Any:
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise UsageError("--find needs an extra package.", "Run: pip install 'kvroom[hub]'") from None
    return HfApi()
