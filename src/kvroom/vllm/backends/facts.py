"""What each backend accepts in a release, out of ``data/vllm/rules/backends.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from kvroom.vllm.backends.question import Question
from kvroom.vllm.rules import Rules


@dataclass(frozen=True, slots=True)
class Facts:
    """The restrictions of one backend in one release; see ``_about`` of the data file."""

    name: str
    known: bool
    """Whether this release has rules for the backend at all."""
    # From here on each field is a facet of the data file.
    heads: Any = None
    dtypes: tuple[str, ...] = ("float16", "bfloat16")
    kv: tuple[str, ...] = ("auto",)
    kv_fp8: Mapping[str, Any] = field(default_factory=dict)
    kv_by_capability: Mapping[str, list[int]] = field(default_factory=dict)
    capability: Mapping[str, Any] = field(default_factory=dict)
    blocks: tuple[str | int, ...] = ("x1",)
    sink: Any = False
    mm_prefix: Any = False
    attn: tuple[str, ...] = ("decoder",)
    sliding: bool = False
    batch_invariant: bool = False
    dcp: bool = False
    mla: bool = False
    sparse: bool = False
    module: str = ""
    combination: tuple[str, ...] = ()
    nope: Mapping[str, Any] = field(default_factory=dict)
    absent_reason: str = ""
    kv_fp8_reason: str = ""
    sparse_reason: str = ""
    causal: str = ""
    """The backend to which a composite hands queries without images."""
    latent_512: Mapping[str, Any] = field(default_factory=dict)


_FACETS = tuple(field.name for field in fields(Facts))[2:]


@lru_cache(maxsize=2048)
def facts(rules: Rules, name: str) -> Facts:
    """The facts of backend ``name`` in the release of ``rules``."""
    given: dict[str, Any] = {}
    for facet in _FACETS:
        try:
            rule = rules.rule(f"backend.{name}.{facet}")
        except KeyError:
            continue
        if rule.since <= rules.release:
            frozen = isinstance(rule.value, list) and facet != "heads"
            given[facet] = tuple(rule.value) if frozen else rule.value
    return Facts(name, bool(given), **given)


def block_base(block: str | int) -> int:
    """The number in a block size of the data: ``x16`` is any multiple of 16."""
    return int(block[1:]) if isinstance(block, str) else block


def quantized(rules: Rules, ask: Question) -> bool:
    """Whether vLLM counts the KV cache's dtype as quantised."""
    return ask.kv_cache_dtype.startswith(tuple(rules["backend.quantized"]))


def fa_version(rules: Rules, ask: Question, head_size: int | None, *, kernel_256: bool = False) -> int | None:
    """The version of FlashAttention that vLLM uses here, None where there is none.

    ``kernel_256`` says that the caller can use version 4's kernel for heads of 256 on Blackwell.
    Mirrors v1/attention/backends/fa_utils.py: get_flash_attn_version.
    """
    rule, major = rules["backend.flash_attn_version"], ask.major
    has_fa4 = rule["fa4_on_10"] and major in {9, 10, 11} and "fa4" not in ask.without
    version = 3 if major == 9 and "fa3" not in ask.without else 4 if major == 10 and has_fa4 else 2
    version = ask.flash_attn_version or version
    if version == 3 and major >= 10:
        version = 4 if has_fa4 else 2
    above = rule.get("fa4_on_9_above")
    if version == 3 and above and head_size is not None and head_size > above and has_fa4:
        version = 4
    if version == 4 and major >= 10 and head_size is not None and head_size > 128:
        wide = head_size in rule["wide_on_10"]
        if head_size == 256 and "paged_256" in rule:
            wide = kernel_256 and _paged_256(rules, ask, rule["paged_256"])
        version = 4 if wide else 2
    if (version == 4 and not has_fa4) or (version == 3 and major != 9) or major < 8:
        return None
    return version


def kernel_blocks(rules: Rules, name: str, ask: Question) -> tuple[str | int, ...]:
    """The block sizes that the kernel of backend ``name`` takes (get_supported_kernel_block_sizes)."""
    has = facts(rules, name)
    if "FLASH_ATTN" in {name, has.causal}:
        size, free = ask.layer.head_size, replace(ask, block_size=None)
        page = rules["backend.flash_attn_version"].get("paged_256")
        if page and size == 256 and ask.major in {10, 11} and fa_version(rules, free, size, kernel_256=True) == 4:
            return (int(page),)
        wide = facts(rules, "FLASH_ATTN").kv_fp8.get("fa4_on_9_heads")
        if wide == size and quantized(rules, ask) and ask.major == 9 and fa_version(rules, free, size) == 4:
            return (64,)
    return has.blocks


def _paged_256(rules: Rules, ask: Question, page: int) -> bool:
    """Whether version 4's kernel for heads of 256 serves this (fa_utils.py: _fa4_hd256_fallback_reason)."""
    fits = ask.block_size is None or ask.block_size % page == 0
    return fits and not (ask.layer.sink or quantized(rules, ask) or ask.mm_prefix or ask.dcp)
