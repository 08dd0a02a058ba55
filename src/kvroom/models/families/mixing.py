"""Hybrids layer by layer: which layers attend, and the state or attention that each keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.errors import BadConfig
from kvroom.models.shape import Cache, CacheLayer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvroom.models.fields import Fields

STATE_WORDS = frozenset({"mamba", "linear_attention", "mamba2", "conv", "linear", "M"})
ATTENTION_WORDS = frozenset({"attention", "full_attention", "*"})
"""What configs call the two kinds of layer."""


def attends_of(config: Fields, types: Iterable[str]) -> list[bool]:
    """Whether each layer attends, by its name in ``types``. Raises BadConfig for a name that is neither."""
    attends = []
    for each in types:
        if each not in STATE_WORDS and each not in ATTENTION_WORDS:
            raise BadConfig(f"{config.where}: a layer of type '{each[:40]}' is neither attention nor a state.")
        attends.append(each in ATTENTION_WORDS)
    return attends


def mixed(
    attends: Sequence[bool], attention: Cache | None, attention_path: str, state: Cache, state_path: str
) -> tuple[CacheLayer, ...]:
    """One cache a layer: ``attention`` where it attends (and there is one), else ``state``."""
    layers = []
    for index, each in enumerate(attends):
        if each and attention is not None:
            layers.append(CacheLayer(index, attention, attention_path))
        else:
            layers.append(CacheLayer(index, state, state_path))
    return tuple(layers)
