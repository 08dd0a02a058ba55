"""The choice of releases to 0.11.0: a chain of conditions for V0, one for V1 and one for latent attention.

Mirrors vllm/platforms/cuda.py: get_attn_backend_cls of 0.8.5, 0.9.2, 0.10.x and 0.11.0.
"""

from __future__ import annotations

from typing import NamedTuple

from kvroom.vllm.backends.facts import fa_version, facts
from kvroom.vllm.backends.question import Question
from kvroom.vllm.rules import Rules


class Pick(NamedTuple):
    """A backend, the sentence that says why, and the error that its implementation will raise."""

    name: str
    how: str
    error: str | None = None


def pick_legacy(rules: Rules, ask: Question, asked: str | None, engine: str, block_size: int) -> Pick:
    """The backend for ``ask`` under ``engine`` V0 or V1; ``block_size`` is the one already decided."""
    if ask.layer.mla:
        return _latent(rules, ask, asked, engine, block_size)
    pick = _v1(rules, ask, asked) if engine == "V1" else _v0(rules, ask, asked, block_size)
    fp8 = ask.kv_cache_dtype.startswith("fp8")
    if fp8 and pick.name == "FLASH_ATTN" and not _flash_fp8(rules, ask):
        return pick._replace(error=rules["backend.legacy_fp8_error"])
    return pick


def _flash_fp8(rules: Rules, ask: Question) -> bool:
    return ask.major == 9 and fa_version(rules, ask, None) == 3 and bool(facts(rules, "FLASH_ATTN").kv_fp8)


def _v1(rules: Rules, ask: Question, asked: str | None) -> Pick:
    rule, layer = rules["backend.legacy_v1"], ask.layer
    if asked:
        return Pick(asked, f"asked for with {rules['backend.asked_by']}")
    half = ask.dtype in {"float16", "bfloat16"}
    blackwell = ask.capability == (10, 0) and "flashinfer" not in ask.without
    if rule.get("flashinfer_on_10") and blackwell and half and _takes(rules, "FLASHINFER", layer.head_size):
        return Pick("FLASHINFER", "the default on compute capability 10.0")
    if ask.major >= 8:
        off_hopper = ask.capability != (9, 0)
        if layer.sink and off_hopper and "sink" in rule:
            return Pick(rule["sink"], "attention sinks need Triton off Hopper")
        if ask.kv_cache_dtype.startswith("fp8") and off_hopper and "fp8" in rule:
            return Pick(rule["fp8"], "an fp8 KV cache needs Triton off Hopper")
        if half and _takes(rules, "FLASH_ATTN", layer.head_size):
            return Pick("FLASH_ATTN", "the default on compute capability 8.0 and above")
        lacking = f"head size {layer.head_size}" if half else f"dtype {ask.dtype}"
        return Pick(rule["otherwise"], f"FlashAttention does not take {lacking}")
    return Pick(rule["otherwise"], "FlashAttention needs compute capability 8.0")


def _v0(rules: Rules, ask: Question, asked: str | None, block_size: int) -> Pick:
    if asked and asked != "FLASH_ATTN":
        return Pick(asked, f"asked for with {rules['backend.asked_by']}")
    lacking = (
        (ask.major < 8, "Cannot use FlashAttention-2 backend for Volta and Turing GPUs."),
        (
            ask.dtype not in {"float16", "bfloat16"},
            "Cannot use FlashAttention-2 backend for dtype other than torch.float16 or torch.bfloat16.",
        ),
        (block_size % 16 != 0, "Cannot use FlashAttention-2 backend for block size not divisible by 16."),
        (
            not _takes(rules, "FLASH_ATTN", ask.layer.head_size),
            f"Cannot use FlashAttention-2 backend for head size {ask.layer.head_size}.",
        ),
        (
            ask.kv_cache_dtype.startswith("fp8") and not _flash_fp8(rules, ask),
            "Cannot use FlashAttention backend for FP8 KV cache.",
        ),
    )
    for wrong, words in lacking:
        if wrong:
            return Pick("XFORMERS", words)
    return Pick("FLASH_ATTN", "the default of the V0 engine")


def _latent(rules: Rules, ask: Question, asked: str | None, engine: str, block_size: int) -> Pick:
    how = f"asked for with {rules['backend.asked_by']}" if asked else f"the first that serves {block_size}-token blocks"
    if ask.layer.sparse:
        return Pick("FLASHMLA_SPARSE", "the only backend for sparse latent attention")
    flashmla = ask.major == 9 and "flashmla" not in ask.without and block_size == 64
    if asked and asked != "FLASHMLA":
        name = asked
    elif not asked and ask.capability == (10, 0) and block_size == 128 and facts(rules, "CUTLASS_MLA").known:
        name = "CUTLASS_MLA"
    elif flashmla and facts(rules, "FLASHMLA").known:
        name = "FLASHMLA"
    else:
        name, how = "TRITON_MLA", "FlashMLA needs Hopper and blocks of 64 tokens"
    error = None
    if ask.kv_cache_dtype.startswith("fp8") and name == "TRITON_MLA":
        error = rules["backend.legacy_mla_fp8_error"]
        error = error if engine == "V1" else error.replace(" V1", "")
    return Pick(name, how, error)


def _takes(rules: Rules, name: str, head_size: int) -> bool:
    heads = facts(rules, name).heads
    return not isinstance(heads, list) or head_size in heads
