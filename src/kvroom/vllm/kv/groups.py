"""How vLLM deals layers into KV cache groups: one block id buys one page in each layer of one group.

Mirrors v1/core/kv_cache_utils.py: get_kv_cache_groups and what it calls, in every release from 0.8.5.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kvroom.errors import EngineError
from kvroom.units import cdiv
from kvroom.vllm.kv.pages import (
    FULL_KINDS,
    Spec,
    SpecKind,
    WindowMismatch,
    attention_unit,
    merged,
    same_type,
)
from kvroom.vllm.rules import Rules

TYPE_IDS = {SpecKind.CHUNKED: "local_attention", SpecKind.MAMBA: "mamba", SpecKind.SLIDING: "sliding_window"}
CLASSES = {
    SpecKind.CHUNKED: "ChunkedLocalAttentionSpec",
    SpecKind.MAMBA: "MambaSpec",
    SpecKind.SLIDING: "SlidingWindowSpec",
}


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


def grouped(layers: Sequence[Layer], rules: Rules, *, hybrid: bool, packed: bool = False) -> Grouping:
    """The KV cache groups of ``layers`` in vLLM's order (the first one matters to some releases).

    ``hybrid`` is False with the hybrid KV cache manager disabled, ``packed`` when the backends resolve
    to a block-outermost layout. Raises EngineError with vLLM's message where it gives up.
    """
    if not layers:
        return Grouping(())
    by_page = rules["kv_groups_by"] == "page"
    warnings: list[str] = []
    if not hybrid or rules["kv_one_group_only"]:
        layers = _unified(layers, rules, warnings, by_page=by_page)
    one = merged([layer.spec for layer in layers], by_page=by_page)
    if one is not None:
        return Grouping((Group(one, tuple(layers)),), tuple(warnings))
    if rules["kv_uniform_type"] and same_type(_specs(layers), mamba_by_page=rules["kv_mamba_by_page"]):
        return Grouping((uniform_group(layers),), tuple(warnings))
    if rules["kv_packing"] == "compressed" and _is_compressed(layers, rules):
        from kvroom.vllm.kv.packing import compressed_groups

        return Grouping(compressed_groups(layers, rules), tuple(warnings))
    if rules["kv_packing"] == "block_outermost" and packed and len(_pages(layers)) > 1:
        from kvroom.vllm.kv.packing import packed_groups

        return Grouping(packed_groups(layers, rules), tuple(warnings))
    if rules["kv_one_group_only"]:
        raise EngineError(
            "NotImplementedError: this vLLM release serves models with one kind of KV cache only.",
            "Use a newer vLLM release.",
        )
    try:
        layers = _equal_pages(layers, rules)
    except EngineError:
        fallback = _full_allocation(layers, rules)
        if fallback is None:
            raise
        return Grouping((fallback,), tuple(warnings))
    return Grouping(_dealt(layers, rules, warnings, by_page=by_page), tuple(warnings))


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


def _specs(layers: Sequence[Layer]) -> list[Spec]:
    return [layer.spec for layer in layers]


def _pages(layers: Sequence[Layer]) -> set[int]:
    return {layer.spec.page_bytes for layer in layers}


def _is_compressed(layers: Sequence[Layer], rules: Rules) -> bool:
    windowed = any(layer.spec.kind is SpecKind.SLIDING_MLA for layer in layers)
    return windowed and (not rules["kv_compressed_needs_mixed_pages"] or len(_pages(layers)) > 1)


# Without the hybrid manager: windowed layers are stored as full attention.


def _unified(layers: Sequence[Layer], rules: Rules, warnings: list[str], *, by_page: bool) -> Sequence[Layer]:
    """``layers`` with every windowed one stored in full, as --disable-hybrid-kv-cache-manager wants."""
    if _is_uniform(layers, rules, by_page=by_page):
        return layers
    if rules["kv_unify_warning"]:
        warnings.append(rules["kv_unify_warning"])
    layers = _promoted(layers, rules)
    if not _is_uniform(layers, rules, by_page=by_page):
        raise EngineError(
            rules["kv_unify_error"] or "NotImplementedError",
            "Leave the hybrid KV cache manager on, or use another vLLM release.",
        )
    return layers


def _is_uniform(layers: Sequence[Layer], rules: Rules, *, by_page: bool) -> bool:
    specs = _specs(layers)
    return merged(specs, by_page=by_page) is not None or (
        rules["kv_uniform_type"] and same_type(specs, mamba_by_page=rules["kv_mamba_by_page"])
    )


def _promoted(layers: Sequence[Layer], rules: Rules) -> list[Layer]:
    """Mirrors unify_hybrid_kv_cache_specs, later _promote_local_kv_cache_specs."""
    full = [layer.spec for layer in layers if layer.spec.kind in FULL_KINDS]
    if not full:
        return list(layers)
    blocks = {spec.block_size for spec in full}
    if rules["kv_promotion_block"] == "full":
        block = full[0].block_size if len(blocks) == 1 else None
        return [Layer(layer.index, _promote(layer.spec, rules, block)) for layer in layers]
    block = full[0].block_size
    return [
        Layer(layer.index, _promote(layer.spec, rules, block if layer.spec.kind is SpecKind.SLIDING_MLA else None))
        for layer in layers
    ]


def _promote(spec: Spec, rules: Rules, block: int | None) -> Spec:
    if spec.kind is SpecKind.SLIDING:
        kind, mark = SpecKind.FULL, "sliding"
    elif spec.kind is SpecKind.CHUNKED and rules["kv_promotes_chunked"]:
        kind, mark = SpecKind.FULL, "chunked"
    elif spec.kind is SpecKind.SLIDING_MLA:
        if rules["kv_promotion_of_window_fails"]:
            raise EngineError(rules["kv_promotion_of_window_fails"], "Leave the hybrid KV cache manager on.")
        kind, mark = SpecKind.MLA, ""
    else:
        return spec
    block_size = block or spec.block_size
    window = spec.window if mark and rules["kv_promotion_records_window"] else None
    padded = spec.page_padded
    if padded is not None and block:
        padded = max(padded, spec.unpadded_bytes * block_size // spec.block_size)
    new = replace(
        spec,
        kind=kind,
        block_size=block_size,
        unit_bytes=spec.promoted_unit or spec.unit_bytes,
        promoted_unit=0,
        page_padded=padded,
        window=window,
        extra_tokens=0,
        promoted=mark if window else "",
        strided=spec.strided and not rules["kv_promotion_drops_stride"],
    )
    if mark in rules["kv_promotion_drops_quantization"] and len(spec.identity) == 5 and spec.identity[4]:
        heads, size, _, dtype, _ = spec.identity
        unit = attention_unit(int(str(heads)), int(str(size)), int(str(size)), str(dtype))
        new = replace(new, unit_bytes=unit, identity=(heads, size, size, dtype, ""))
    return new


def _full_allocation(layers: Sequence[Layer], rules: Rules) -> Group | None:
    """One group that stores windowed layers beside MLA in full, where pages cannot be made equal.

    Mirrors _try_get_full_allocation_fallback_groups.
    """
    kinds = {layer.spec.kind for layer in layers}
    if not rules["kv_full_allocation_fallback"] or not {SpecKind.MLA, SpecKind.SLIDING} <= kinds:
        return None
    if kinds & {SpecKind.SLIDING_MLA, SpecKind.CHUNKED}:
        return None
    promoted = _promoted(layers, rules)
    return uniform_group(promoted) if same_type(_specs(promoted), mamba_by_page=True) else None


# The general case: equal pages, then groups of equal size.


def _equal_pages(layers: Sequence[Layer], rules: Rules) -> Sequence[Layer]:
    """``layers`` with equal pages. Mirrors unify_kv_cache_spec_page_size."""
    pages = _pages(layers)
    if len(pages) == 1:
        return layers
    target = max(pages)
    how = rules["kv_unify_pages"]
    known: dict[Spec, Spec] = {}
    for layer in layers:
        if layer.spec not in known:
            known[layer.spec] = _with_page(layer, target, how, rules)
    return [Layer(layer.index, known[layer.spec]) for layer in layers]


def _with_page(layer: Layer, target: int, how: str, rules: Rules) -> Spec:
    spec, page = layer.spec, layer.spec.page_bytes
    if page == target:
        return spec
    if how == "refuse":
        raise EngineError(
            f"NotImplementedError: this vLLM release cannot mix layers whose pages differ ({page} and {target} bytes).",
            "Use vLLM 0.12.0 or newer.",
        )
    if spec.kind is SpecKind.MAMBA and how in ("stride_or_mamba", "pad"):
        return replace(spec, page_padded=target)
    if target % page == 0 and not (spec.kind is SpecKind.MAMBA or spec.page_padded is not None):
        return replace(spec, block_size=spec.block_size * (target // page))
    padable = spec.kind not in (SpecKind.MLA, SpecKind.MAMBA)
    if padable and target % page and (how == "pad" or (spec.strided and how != "divide")):
        return replace(spec, page_padded=target)
    raise EngineError(
        rules["kv_unify_pages_error"].format(layer=layer.index),
        "Try another attention backend, KV cache dtype or --block-size.",
    )


def _dealt(layers: Sequence[Layer], rules: Rules, warnings: list[str], *, by_page: bool) -> tuple[Group, ...]:
    """Groups of equal size, dealt round-robin. Mirrors _get_kv_cache_groups_uniform_page_size."""
    buckets = _buckets(layers, rules, by_page=by_page)
    fewest, most = min(map(len, buckets)), max(map(len, buckets))
    size = most if most < fewest * rules["kv_group_stretch"] else fewest
    groups = []
    for bucket in buckets:
        padding = size - len(bucket) % size
        if padding != size:
            share = padding / len(bucket) * 100
            warnings.append(f"Add {padding} padding layers, may waste at most {share:.2f}% KV cache memory")
        count = cdiv(len(bucket), size)
        for i in range(count):
            part = bucket[i::count] if rules["kv_deals_layers"] else bucket[i * size : (i + 1) * size]
            spec = merged(_specs(part), by_page=by_page)
            assert spec is not None
            groups.append(Group(spec, tuple(part)))
    order = rules["kv_group_order"]
    if order != "layers":
        groups.sort(key=lambda group: _type_id(group.spec, order))
    return tuple(groups)


def _type_id(spec: Spec, order: str) -> tuple[str, ...] | tuple[str, int, int, int]:
    """What releases to 0.10 sort groups by: a string, or the fields behind the name of the class."""
    numbers = (spec.window or 0, spec.block_size, spec.page_bytes)
    if order == "type_id":
        return (TYPE_IDS.get(spec.kind, "full_attention"), "_".join(map(str, numbers if spec.window else numbers[1:])))
    return (CLASSES.get(spec.kind, "FullAttentionSpec"), numbers[1], numbers[2], numbers[0])


def _buckets(layers: Sequence[Layer], rules: Rules, *, by_page: bool) -> list[list[Layer]]:
    """Layers of equal spec together; since 0.27 also those whose specs can merge."""
    equal: dict[object, list[Layer]] = {}
    for layer in layers:
        spec = layer.spec
        key: object = (spec.kind, spec.window, spec.block_size, spec.page_bytes) if by_page else spec
        if by_page and spec.kind is SpecKind.FULL:
            key = (spec.kind, spec.block_size, spec.page_bytes)
        equal.setdefault(key, []).append(layer)
    if not rules["kv_merges_buckets"]:
        return list(equal.values())
    buckets: list[list[Layer]] = []
    for found in equal.values():
        for bucket in buckets:
            try:
                fits = merged([*_specs(bucket), found[0].spec]) is not None
            except WindowMismatch:
                fits = False
            if fits:
                bucket.extend(found)
                break
        else:
            buckets.append(list(found))
    return buckets
