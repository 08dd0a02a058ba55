"""Whether a backend accepts a configuration, and vLLM's words when it does not."""

from __future__ import annotations

from functools import lru_cache

from kvroom.vllm.backends.combinations import COMBINATIONS, flash_reads_fp8
from kvroom.vllm.backends.facts import Facts, block_base, fa_version, facts, kernel_blocks, quantized
from kvroom.vllm.backends.question import Question
from kvroom.vllm.rules import Rules


@lru_cache(maxsize=8192)
def reasons(rules: Rules, name: str, ask: Question) -> tuple[str, ...]:
    """What backend ``name`` lacks for ``ask``, as vLLM words it; () when it will do.

    Mirrors v1/attention/backend.py: AttentionBackend.validate_configuration, check by check.
    """
    has, layer = facts(rules, name), ask.layer
    if has.module and has.module in ask.without:
        return (rules["backend.error.absent"].format(module=has.module),)
    checks = rules["backend.checks"]
    found = [
        reason
        for wrong, reason in (
            (not _head_size(rules, has, ask), "head_size not supported"),
            (ask.dtype not in has.dtypes, "dtype not supported"),
            (not _kv_dtype(rules, has, ask), "kv_cache_dtype not supported"),
            ("block_size" in checks and not _block(rules, name, ask), "block_size not supported"),
            (
                "mm_prefix" in checks and ask.mm_prefix and not _mm_prefix(rules, has, ask),
                "partial multimodal token full attention not supported",
            ),
            (layer.mla != has.mla, "MLA not supported" if layer.mla else "non-MLA not supported"),
            (layer.sink and not _sink(rules, has, ask), rules["backend.reason.sink"]),
            (
                layer.sparse != has.sparse,
                "sparse not supported" if layer.sparse else "non-sparse not supported",
            ),
            (not _capability(has, ask), "compute capability not supported"),
            (layer.attn_type not in has.attn, f"attention type {layer.attn_type} not supported"),
            (
                "sliding_window" in checks and layer.sliding and not has.sliding,
                "sliding window not supported",
            ),
            (
                "batch_invariant" in checks and ask.batch_invariant and not has.batch_invariant,
                "batch invariance not supported",
            ),
            ("dcp" in checks and ask.dcp and not has.dcp, "DCP not supported"),
        )
        if wrong
    ]
    combined = (COMBINATIONS[check](rules, has, ask) for check in has.combination)
    prefix = f"{has.causal}: " if has.causal else ""
    return (*found, *[prefix + reason for reason in combined if reason][:1])


def _head_size(rules: Rules, has: Facts, ask: Question) -> bool:
    heads, size = has.heads, ask.layer.head_size
    if heads is None:
        return True
    if isinstance(heads, list):
        return size in heads
    if size < heads.get("min", 0) or size % heads.get("multiple", 1):
        return False
    most = heads.get("max", size)
    if size > most and "max_fa4" in heads and _has_fa4(rules, ask):
        most = heads["max_fa4"]
    return bool(size <= most)


def _has_fa4(rules: Rules, ask: Question) -> bool:
    built = rules["backend.flash_attn_version"]["fa4_on_10"] and "fa4" not in ask.without
    return bool(built) and ask.major in {9, 10, 11}


def _kv_dtype(rules: Rules, has: Facts, ask: Question) -> bool:
    dtype = ask.kv_cache_dtype
    if dtype in has.kv:
        return True
    majors = has.kv_by_capability.get(dtype)
    if majors is not None:
        return not majors or ask.major in majors
    accepted = has.kv_fp8.get("dtypes", ())
    named = (
        dtype in accepted
        or ("fp8*" in accepted and dtype.startswith("fp8"))
        or ("quantized" in accepted and quantized(rules, ask))
    )
    return named and flash_reads_fp8(rules, has, ask, None)


def _block(rules: Rules, name: str, ask: Question) -> bool:
    size = ask.block_size
    return size is None or any(size % block_base(block) == 0 for block in kernel_blocks(rules, name, ask))


def _mm_prefix(rules: Rules, has: Facts, ask: Question) -> bool:
    return _has_fa4(rules, ask) if has.mm_prefix == "fa4" else bool(has.mm_prefix)


def _sink(rules: Rules, has: Facts, ask: Question) -> bool:
    if not isinstance(has.sink, dict):
        return bool(has.sink)
    if "fa" in has.sink:
        return fa_version(rules, ask, None) in has.sink["fa"]
    return ask.major in has.sink.get("majors", ()) or list(ask.capability) in has.sink.get("capabilities", ())


def _capability(has: Facts, ask: Question) -> bool:
    rule, capability = has.capability, list(ask.capability)
    if "majors" in rule:
        return ask.major in rule["majors"]
    return bool(rule.get("min", [0, 0]) <= capability <= rule.get("max", [99, 9]))
