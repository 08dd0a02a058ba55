"""Windowed layers stored like full attention: without the hybrid KV cache manager, or for lack of equal pages.

Mirrors v1/core/kv_cache_utils.py: unify_hybrid_kv_cache_specs and _promote_local_kv_cache_specs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvroom.errors import EngineError
from kvroom.vllm.kv.groups import Group, Layer, specs_in, uniform_group
from kvroom.vllm.kv.pages import FULL_KINDS, Spec, SpecKind, attention_unit, merged, same_type
from kvroom.vllm.rules import Rules


def unified(layers: Sequence[Layer], rules: Rules, warnings: list[str], *, by_page: bool) -> Sequence[Layer]:
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
    specs = specs_in(layers)
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


def full_allocation(layers: Sequence[Layer], rules: Rules) -> Group | None:
    """One group that stores windowed layers beside MLA in full, where pages cannot be made equal.

    Mirrors _try_get_full_allocation_fallback_groups.
    """
    kinds = {layer.spec.kind for layer in layers}
    if not rules["kv_full_allocation_fallback"] or not {SpecKind.MLA, SpecKind.SLIDING} <= kinds:
        return None
    if kinds & {SpecKind.SLIDING_MLA, SpecKind.CHUNKED}:
        return None
    promoted = _promoted(layers, rules)
    return uniform_group(promoted) if same_type(specs_in(promoted), mamba_by_page=True) else None
