"""How vLLM deals layers into KV cache groups, in every release from 0.8.5.

Mirrors v1/core/kv_cache_utils.py: get_kv_cache_groups and what it calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvroom.errors import EngineError
from kvroom.units import cdiv
from kvroom.vllm.kv.groups import Group, Grouping, Layer, specs_in, uniform_group
from kvroom.vllm.kv.packing import compressed_groups, packed_groups
from kvroom.vllm.kv.pages import Spec, SpecKind, WindowMismatch, merged, same_type
from kvroom.vllm.kv.promotion import full_allocation, unified
from kvroom.vllm.rules import Rules

TYPE_IDS = {SpecKind.CHUNKED: "local_attention", SpecKind.MAMBA: "mamba", SpecKind.SLIDING: "sliding_window"}
CLASSES = {
    SpecKind.CHUNKED: "ChunkedLocalAttentionSpec",
    SpecKind.MAMBA: "MambaSpec",
    SpecKind.SLIDING: "SlidingWindowSpec",
}


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
        layers = unified(layers, rules, warnings, by_page=by_page)
    one = merged([layer.spec for layer in layers], by_page=by_page)
    if one is not None:
        return Grouping((Group(one, tuple(layers)),), tuple(warnings))
    if rules["kv_uniform_type"] and same_type(specs_in(layers), mamba_by_page=rules["kv_mamba_by_page"]):
        return Grouping((uniform_group(layers),), tuple(warnings))
    if rules["kv_packing"] == "compressed" and _is_compressed(layers, rules):
        return Grouping(compressed_groups(layers, rules), tuple(warnings))
    if rules["kv_packing"] == "block_outermost" and packed and len(_pages(layers)) > 1:
        return Grouping(packed_groups(layers, rules), tuple(warnings))
    if rules["kv_one_group_only"]:
        raise EngineError(
            "NotImplementedError: this vLLM release serves models with one kind of KV cache only.",
            "Use a newer vLLM release.",
        )
    try:
        layers = _equal_pages(layers, rules)
    except EngineError:
        fallback = full_allocation(layers, rules)
        if fallback is None:
            raise
        return Grouping((fallback,), tuple(warnings))
    return Grouping(_dealt(layers, rules, warnings, by_page=by_page), tuple(warnings))


def _pages(layers: Sequence[Layer]) -> set[int]:
    return {layer.spec.page_bytes for layer in layers}


def _is_compressed(layers: Sequence[Layer], rules: Rules) -> bool:
    windowed = any(layer.spec.kind is SpecKind.SLIDING_MLA for layer in layers)
    return windowed and (not rules["kv_compressed_needs_mixed_pages"] or len(_pages(layers)) > 1)


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
            spec = merged(specs_in(part), by_page=by_page)
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
                fits = merged([*specs_in(bucket), found[0].spec]) is not None
            except WindowMismatch:
                fits = False
            if fits:
                bucket.extend(found)
                break
        else:
            buckets.append(list(found))
    return buckets
