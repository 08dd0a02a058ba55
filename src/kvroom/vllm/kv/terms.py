"""What one request takes of the cache, as sums of terms that grow with its length.

Mirrors each spec's max_memory_usage_bytes (v1/kv_cache_interface.py) and
_max_memory_usage_bytes_from_groups (v1/core/kv_cache_utils.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kvroom.units import cdiv
from kvroom.vllm.kv.groups import Group
from kvroom.vllm.kv.packing import compressed_block_bytes, layer_tuple_bytes, layer_tuples
from kvroom.vllm.kv.pages import FULL_KINDS, Spec, SpecKind
from kvroom.vllm.rules import Rules
from kvroom.vllm.settings import Settings

UNBOUNDED = 1 << 60


class Term(NamedTuple):
    """What a request of L tokens takes: weight x (ceil(min(cap, ceil(L / ranks)) / block) + add)."""

    weight: int
    ranks: int
    cap: int
    block: int
    add: int

    def blocks(self, length: int) -> int:
        """Blocks for ``length`` tokens, without the weight."""
        return cdiv(min(self.cap, cdiv(length, self.ranks)), self.block) + self.add

    def tokens(self, limit: int) -> int:
        """The longest request that ``limit`` pays for, where nothing caps it."""
        return (limit // self.weight - self.add) * self.block * self.ranks


@dataclass(frozen=True, slots=True)
class Terms:
    """How many blocks a request takes, by kind. Mirrors each spec's max_memory_usage_bytes over its page."""

    settings: Settings
    ranks: int

    def of_spec(self, spec: Spec, weight: int) -> Term:
        """The term of one layer."""
        kind, window = spec.kind, spec.window or 0
        if kind in FULL_KINDS:
            return Term(weight, self.ranks, UNBOUNDED, spec.block_size, 0)
        if kind is SpecKind.MAMBA:
            return Term(weight, 1, UNBOUNDED if spec.grows else 0, spec.block_size, spec.fixed_blocks)
        if kind is SpecKind.CROSS:
            return Term(weight, 1, 0, 1, cdiv(window, spec.block_size))
        batches = self.settings.max_concurrent_batches if self.settings.rules["kv_in_flight_batches"] else 1
        in_flight = batches * self.settings.max_num_batched_tokens
        if kind is SpecKind.CHUNKED:
            return Term(weight, 1, window + in_flight, spec.block_size, 0)
        return Term(weight, 1, window - 1 + spec.extra_tokens + in_flight, spec.block_size, 1)

    def of_group(self, group: Group, weight: int) -> Term:
        """The term of ``group``: its hungriest layer's where layers keep specs of their own."""
        if not group.uniform:
            return self.of_spec(group.spec, weight)
        terms = {self.of_spec(layer.spec, weight) for layer in group.members}
        return max(terms, key=lambda term: term.blocks(UNBOUNDED >> 1))


def terms_needed(groups: tuple[Group, ...], rules: Rules, terms: Terms, *, first_only: bool) -> tuple[Term, ...]:
    """Mirrors _max_memory_usage_bytes_from_groups."""
    if not groups:
        return ()
    if rules["kv_reserves_null_block"]:
        weight = block_bytes(groups, rules)
        return added(terms.of_group(group, weight) for group in groups)
    if len(groups) == 1 and groups[0].uniform:
        return added(terms.of_spec(layer.spec, layer.spec.page_bytes) for layer in groups[0].members)
    if all(group.uniform for group in groups):
        weight = layer_tuples(groups) * layer_tuple_bytes(groups[0])
    else:
        weight = max(len(group.layers) for group in groups) * groups[0].spec.page_bytes
    counted = groups[:1] if first_only else groups
    return added(terms.of_group(group, weight) for group in counted)


def added(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Equal terms added up."""
    weights: dict[Term, int] = {}
    for term in terms:
        key = term._replace(weight=0)
        weights[key] = weights.get(key, 0) + term.weight
    return tuple(key._replace(weight=weight) for key, weight in weights.items())


def block_bytes(groups: tuple[Group, ...], rules: Rules) -> int:
    """Bytes of one block id. Mirrors _pool_bytes_per_block."""
    if len(groups) == 1 and groups[0].uniform and not rules["kv_reserves_null_block"]:
        return groups[0].page_bytes
    compressed = len(groups) > 1 and all(group.uniform for group in groups)
    if compressed and rules["kv_packing"] == "compressed" and rules["kv_compressed_block"] != "widest":
        return compressed_block_bytes(groups, rules)
    return max(group.block_bytes for group in groups)
