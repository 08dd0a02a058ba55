"""What one layer stores in one block: the page, and when vLLM takes two layers' pages for the same.

Mirrors v1/kv_cache_interface.py. A ``Spec`` keeps what decides bytes and grouping, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from kvroom.errors import EngineError
from kvroom.units import cdiv

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1, "int8": 1, "float8_e4m3fn": 1}
"""Bytes an element of the dtypes that a cache can have."""


class SpecKind(StrEnum):
    """Kinds of cache, by vLLM's names (v1/kv_cache_interface.py: KVCacheSpecKind)."""

    FULL = "full_attention"
    MLA = "mla_attention"
    SLIDING = "sliding_window"
    SLIDING_MLA = "sliding_window_mla"
    CHUNKED = "chunked_local_attention"
    CROSS = "cross_attention"
    MAMBA = "mamba"


FULL_KINDS = frozenset({SpecKind.FULL, SpecKind.MLA})
"""Kinds that keep every token of a request."""
WINDOWED_KINDS = frozenset({SpecKind.SLIDING, SpecKind.SLIDING_MLA})


@dataclass(frozen=True, slots=True)
class Spec:
    """One layer's cache on one rank. Bytes are of one page: one block of this layer."""

    kind: SpecKind
    block_size: int
    """Tokens a block covers."""
    unit_bytes: int
    """Bytes of one stored state over all local heads; of the whole state for MAMBA."""
    tokens_per_state: int = 1
    """Tokens that share one stored state (DeepSeek-V4's compressed caches)."""
    page_padded: int | None = None
    """Bytes the page is padded to, None for no padding."""
    alignment: int = 0
    """The page is rounded up to a multiple of this, 0 for no rounding."""
    window: int | None = None
    """Tokens that SLIDING looks back, the chunk of CHUNKED, the encoder's length of CROSS; on FULL, what
    the promoted layer had."""
    extra_tokens: int = 0
    """Tokens kept below the window for multi-module speculation."""
    fixed_blocks: int = 0
    """Blocks that a request holds whatever its length (MAMBA)."""
    grows: bool = False
    """A MAMBA layer that keeps the state of every block (cache mode ``all``)."""
    promoted: str = ""
    """``sliding`` or ``chunked`` on a FULL spec that stands for such a layer."""
    strided: bool = False
    """The backend tolerates a padded page (``indexes_kv_by_block_stride`` of 0.24 to 0.28)."""
    promoted_unit: int = 0
    """``unit_bytes`` once a windowed layer is stored in full, 0 for the same."""
    identity: tuple[object, ...] = ()
    """What else vLLM compares: heads, head sizes, dtypes, quantisation, shapes."""

    @property
    def unpadded_bytes(self) -> int:
        """Bytes the page needs before padding."""
        if self.kind is SpecKind.MAMBA:
            return self.unit_bytes
        return self.unit_bytes * (self.block_size // self.tokens_per_state)

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of this layer."""
        if self.alignment:
            return cdiv(self.unpadded_bytes, self.alignment) * self.alignment
        return self.unpadded_bytes if self.page_padded is None else self.page_padded


def attention_unit(heads: int, head_size: int, head_size_v: int, dtype: str) -> int:
    """Bytes of one token's keys and values over ``heads`` heads, unpacked."""
    return heads * (head_size + head_size_v) * DTYPE_BYTES[dtype]


def state_bytes(shapes: Iterable[tuple[int, ...]], dtypes: Iterable[str]) -> int:
    """Bytes of recurrent states of ``shapes`` stored as ``dtypes`` (one each)."""
    return sum(prod(shape) * DTYPE_BYTES[dtype] for shape, dtype in zip(shapes, dtypes, strict=True))


class WindowMismatch(EngineError):
    """Layers that would share a group look back by different windows."""


def merged(specs: Sequence[Spec], *, by_page: bool = False) -> Spec | None:
    """The spec of a group of layers with ``specs``, or None when vLLM keeps them apart.

    Full attention may merge with layers promoted to it, everything else must be equal. ``by_page``
    compares kind, block and page only, as releases before 0.10.2 did (``type_id``). Raises
    WindowMismatch where vLLM stops with "must have the same window size".
    """
    first = specs[0]
    if first.kind is not SpecKind.FULL:
        same = all(_type_id(spec) == _type_id(first) for spec in specs) if by_page else len(set(specs)) == 1
        return first if same else None
    if any(spec.kind is not SpecKind.FULL for spec in specs):
        return None
    if by_page and len({(spec.block_size, spec.page_bytes) for spec in specs}) > 1:
        return None
    windows = {mark: {s.window for s in specs if s.promoted == mark} for mark in ("sliding", "chunked")}
    if any(len(found) > 1 for found in windows.values()):
        raise WindowMismatch("All attention layers in the same KV cache group must have the same window size.")
    if windows["sliding"] and windows["chunked"]:
        return None
    alike = by_page or all(_merge_key(spec) == _merge_key(first) for spec in specs)
    return first if alike else None


def _merge_key(spec: Spec) -> tuple[object, ...]:
    return spec.block_size, spec.identity, spec.page_padded, spec.strided


def _type_id(spec: Spec) -> tuple[object, ...]:
    if spec.kind is SpecKind.MAMBA:
        return (spec.kind, spec.identity)
    return (spec.kind, spec.window, spec.block_size, spec.page_bytes)


def same_type(specs: Iterable[Spec], *, mamba_by_page: bool) -> bool:
    """Whether layers need the same number of token slots, so that one group can hold them all.

    Mirrors UniformTypeKVCacheSpecs.is_uniform_type. ``mamba_by_page``: recurrent layers must also have
    equal pages.
    """
    specs = list(specs)
    first = specs[0]
    if any(spec.block_size != first.block_size for spec in specs):
        return False
    if first.kind in FULL_KINDS:
        return all(spec.kind in FULL_KINDS for spec in specs)
    if first.kind is SpecKind.SLIDING:
        return all(spec.kind in WINDOWED_KINDS and spec.window == first.window for spec in specs)
    if first.kind in (SpecKind.SLIDING_MLA, SpecKind.CHUNKED):
        return all(spec.kind is first.kind and spec.window == first.window for spec in specs)
    if first.kind is SpecKind.MAMBA:
        return all(
            spec.kind is first.kind
            and spec.fixed_blocks == first.fixed_blocks
            and (not mamba_by_page or spec.page_bytes == first.page_bytes)
            for spec in specs
        )
    return all(spec.kind is first.kind for spec in specs)
