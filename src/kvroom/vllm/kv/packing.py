"""Groups whose layers differ in page size and lie side by side in one block: DeepSeek-V4 and its kin.

Two planners: releases 0.20 to 0.28 deal compressed caches into tuples of layers (``compressed_groups``),
later ones pack any mixture where the backends want block-outermost storage (``packed_groups``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kvroom.errors import EngineError
from kvroom.units import cdiv
from kvroom.vllm.kv.groups import Group, Layer, uniform_group
from kvroom.vllm.kv.pages import WINDOWED_KINDS, SpecKind, same_type
from kvroom.vllm.rules import Rules


def compressed_groups(layers: Sequence[Layer], rules: Rules) -> tuple[Group, ...]:
    """One group of the full caches, then each windowed kind split to the same number of layer tuples.

    Mirrors group_and_unify_kv_cache_specs and _get_kv_cache_groups_uniform_groups (0.20 to 0.28).
    """
    full = [layer for layer in layers if layer.spec.kind is SpecKind.MLA]
    windowed: dict[tuple[int, int | None], list[Layer]] = {}
    for layer in layers:
        if layer.spec.kind is SpecKind.SLIDING_MLA:
            windowed.setdefault((layer.spec.block_size, layer.spec.window), []).append(layer)
    tuples = [_repeats(full), *(_repeats(bucket) for bucket in windowed.values())]
    repeats = _common_chunk(tuples, tuples[0])
    groups = [uniform_group(full)]
    sizes = sorted({layer.spec.page_bytes for layer in full})
    for bucket in windowed.values():
        if rules["kv_compressed_pads_pages"]:
            bucket = [_padded_to_one_of(layer, sizes) for layer in bucket]  # noqa: PLW2901
        by_size = _by_page(bucket)
        groups += _split(by_size, cdiv(len(next(iter(by_size.values()))), repeats))
    return tuple(groups)


def packed_groups(layers: Sequence[Layer], rules: Rules) -> tuple[Group, ...]:
    """Groups for block-outermost storage, sized so that one block holds each about equally well.

    Mirrors _get_packed_kv_cache_groups (since 0.29).
    """
    buckets = _type_buckets(layers)
    by_size = [_by_page(bucket) for bucket in buckets]
    balanced = [len({len(names) for names in sizes.values()}) == 1 for sizes in by_size]
    floor = max(
        (_repeats(b) for b, s, ok in zip(buckets, by_size, balanced, strict=True) if ok and len(s) > 1),
        default=0,
    )
    repeats = _common_chunk([_repeats(b) for b, ok in zip(buckets, balanced, strict=True) if ok], floor) if floor else 0
    state_kinds = {SpecKind.MAMBA} | (WINDOWED_KINDS if rules["kv_packs_windows"] and not repeats else set())
    counts = [cdiv(_repeats(b), repeats) if ok and repeats else 1 for b, ok in zip(buckets, balanced, strict=True)]
    anchor = max(
        _widest(sizes, len(bucket) if bucket[0].spec.kind in state_kinds else count)
        for bucket, sizes, count in zip(buckets, by_size, counts, strict=True)
    )
    groups: list[Group] = []
    for bucket, sizes, count in zip(buckets, by_size, counts, strict=True):
        if bucket[0].spec.kind in state_kinds:
            fitting = max(anchor // bucket[0].spec.page_bytes, 1)
            count = max(count, cdiv(len(bucket), fitting))  # noqa: PLW2901
        groups += [uniform_group(bucket)] if count == 1 else _split(sizes, count)
    return tuple(groups)


def compressed_block_bytes(groups: Sequence[Group], rules: Rules) -> int:
    """Bytes of one block where groups share slots by page size (0.20 to 0.26).

    Mirrors _pool_bytes_per_block: since 0.23 the slots that groups really use, before that the
    full group's page sizes times the longest run of layers.
    """
    if rules["kv_compressed_block"] == "slots":
        slots: Counter[int] = Counter()
        for group in groups:
            for page, count in Counter(layer.spec.page_bytes for layer in group.layers).items():
                slots[page] = max(slots[page], count)
        return sum(page * count for page, count in slots.items())
    return layer_tuple_bytes(groups[0]) * max(_repeats(group.members) for group in groups)


def layer_tuple_bytes(group: Group) -> int:
    """Bytes of one page of each size that ``group`` has."""
    return sum({layer.spec.page_bytes for layer in group.members})


def layer_tuples(groups: Sequence[Group]) -> int:
    """The longest run of equal pages in any group."""
    return max(_repeats(group.members) for group in groups)


def _repeats(layers: Sequence[Layer]) -> int:
    return max(Counter(layer.spec.page_bytes for layer in layers).values())


def _by_page(layers: Sequence[Layer]) -> dict[int, list[Layer]]:
    sizes: dict[int, list[Layer]] = {}
    for layer in layers:
        sizes.setdefault(layer.spec.page_bytes, []).append(layer)
    return sizes


def _type_buckets(layers: Sequence[Layer]) -> list[list[Layer]]:
    buckets: list[list[Layer]] = []
    for layer in layers:
        for bucket in buckets:
            if same_type((bucket[0].spec, layer.spec), mamba_by_page=True):
                bucket.append(layer)
                break
        else:
            buckets.append([layer])
    return buckets


def _widest(sizes: dict[int, list[Layer]], count: int) -> int:
    return sum(cdiv(len(layers), count) * page for page, layers in sizes.items())


def _split(sizes: dict[int, list[Layer]], count: int) -> list[Group]:
    if len({len(same) for same in sizes.values()}) > 1:  # vLLM loses the layers that are left over
        raise _unpackable("layers of one kind that differ in page size are not equally many")
    repeats = list(zip(*sizes.values(), strict=False))
    return [uniform_group([layer for repeat in repeats[i::count] for layer in repeat]) for i in range(count)]


def _padded_to_one_of(layer: Layer, sizes: Sequence[int]) -> Layer:
    page = layer.spec.page_bytes
    if page > sizes[-1]:
        raise _unpackable("a windowed layer's page may not exceed the largest full page")
    target = min(size for size in sizes if size >= page)
    if target == page:
        return layer
    return Layer(layer.index, replace(layer.spec, page_padded=target, alignment=0))


def _unpackable(why: str) -> EngineError:
    return EngineError(f"AssertionError ({why})", "Try another vLLM release, or leave --block-size alone.")


def _common_chunk(values: Sequence[int], low: int) -> int:
    """The chunk size from ``low`` up that pads ``values`` least in total; the largest of equals.

    Mirrors _approximate_gcd.
    """
    high = max(values)
    if low > high:
        return low
    return min(range(max(1, low), high + 1), key=lambda d: (sum(-x % d for x in values), -d))
