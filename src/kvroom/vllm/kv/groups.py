"""Layers that share a block table: one block id buys one page in each layer of one group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kvroom.vllm.kv.pages import Spec
from kvroom.vllm.rules import Rules


@dataclass(frozen=True, slots=True)
class Layer:
    """One cache of the model: the decoder layer that owns it and its spec."""

    index: int
    spec: Spec


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a block table."""

    spec: Spec
    """The group's spec; of the first layer where pages differ."""
    layers: tuple[Layer, ...]
    """Those on this pipeline stage, in vLLM's order."""
    uniform: bool = False
    """The layers keep specs of their own (vLLM's UniformTypeKVCacheSpecs)."""
    members: tuple[Layer, ...] = ()
    """With ``uniform``: the layers whose specs the group knows, on a stage without any all of them."""

    @property
    def page_bytes(self) -> int:
        """Bytes of vLLM's page of the group: one layer's, or all layers' together when ``uniform``."""
        return sum(layer.spec.page_bytes for layer in self.members) if self.uniform else self.spec.page_bytes

    @property
    def block_bytes(self) -> int:
        """Bytes that one block id takes in this group's layers."""
        if self.uniform:
            return sum(layer.spec.page_bytes for layer in self.layers)
        return self.spec.page_bytes * len(self.layers)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups of a model and what vLLM warns about them."""

    groups: tuple[Group, ...]
    warnings: tuple[str, ...] = ()


def uniform_group(layers: Sequence[Layer]) -> Group:
    """One group for ``layers`` whose pages differ."""
    members = tuple(layers)
    return Group(members[0].spec, members, uniform=True, members=members)


def on_stage(groups: Sequence[Group], owned: Collection[int], rules: Rules) -> tuple[Group, ...]:
    """``groups`` with only the layers that a pipeline stage owns.

    Mirrors _project_kv_cache_groups_to_worker: a group without layers here stays, with its spec. Before
    0.17 a uniform group went on counting the pages of all stages.
    """
    projects = rules["kv_projects_uniform"]
    result = []
    for group in groups:
        mine = tuple(layer for layer in group.layers if layer.index in owned)
        members = mine if group.uniform and mine and projects else group.members
        result.append(replace(group, layers=mine, members=members))
    return tuple(result)


def specs_in(layers: Sequence[Layer]) -> list[Spec]:
    """The specs of ``layers``, one each."""
    return [layer.spec for layer in layers]
