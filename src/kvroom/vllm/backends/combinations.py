"""What a backend refuses because of several things together, in vLLM's words (supports_combination).

Each check takes a release's rules, the backend's facts and the question, and gives the reason or None.
The data file names the checks that a backend makes in a release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvroom.vllm.backends.facts import Facts, fa_version, facts, quantized
from kvroom.vllm.backends.question import Question
from kvroom.vllm.rules import Rules


def flash_reads_fp8(rules: Rules, has: Facts, ask: Question, head_size: int | None) -> bool:
    """Whether FlashAttention reads an fp8 cache here (fa_utils.py: flash_attn_supports_kv_cache_dtype)."""
    rule = has.kv_fp8 or facts(rules, "FLASH_ATTN").kv_fp8
    version = fa_version(rules, ask, head_size, kernel_256=True)
    if ask.major == 9:
        wide = rule.get("fa4_on_9_heads")
        return version == 3 or bool(wide and version == 4 and head_size in {None, wide})
    return bool(rule.get("fa4_on_10")) and version == 4 and ask.major == 10


def _sink_cc9(_rules: Rules, _has: Facts, ask: Question) -> str | None:
    return "sink not supported on compute capability < 9.0" if ask.layer.sink and ask.major < 9 else None


def _mm_prefix_fp8_cc9(rules: Rules, _has: Facts, ask: Question) -> str | None:
    bad = ask.mm_prefix and quantized(rules, ask) and ask.capability == (9, 0)
    return "SM90 FP8 KV with mm_prefix requires Triton" if bad else None


def _fa_fp8(rules: Rules, _has: Facts, ask: Question) -> str | None:
    flash = facts(rules, "FLASH_ATTN")
    reads = ask.kv_cache_dtype != "fp8_e5m2" and flash_reads_fp8(rules, flash, ask, ask.layer.head_size)
    return flash.kv_fp8_reason if quantized(rules, ask) and not reads else None


def _mm_prefix_fa4(rules: Rules, _has: Facts, ask: Question) -> str | None:
    if not ask.mm_prefix or fa_version(rules, ask, ask.layer.head_size, kernel_256=True) == 4:
        return None
    return (
        "mm_prefix (PrefixLM bidirectional attention) requires FlashAttention v4, "
        "which does not resolve for this head_size"
    )


def _fa_causal(rules: Rules, _has: Facts, ask: Question) -> str | None:
    version = fa_version(rules, ask, ask.layer.head_size, kernel_256=True)
    return None if version in {3, 4} else "causal route requires FlashAttention v3 or v4"


def _fa4_causal(rules: Rules, _has: Facts, ask: Question) -> str | None:
    version = fa_version(rules, ask, ask.layer.head_size, kernel_256=True)
    return None if version == 4 else "causal route requires FlashAttention v4"


def _fa_mla(_rules: Rules, _has: Facts, ask: Question) -> str | None:
    fine = ask.major == 9 and "fa3" not in ask.without
    return None if fine else "FlashAttention MLA not supported on this device"


def _flashmla_dense(_rules: Rules, has: Facts, ask: Question) -> str | None:
    if "flashmla" in ask.without:
        return has.absent_reason
    if ask.layer.sparse:
        return None if ask.major in {9, 10} else has.sparse_reason
    return None if ask.major == 9 else "FlashMLA Dense is only supported on Hopper devices."


def _nope(_rules: Rules, has: Facts, ask: Question) -> str | None:
    return None if ask.nope in has.nope["sizes"] else str(has.nope["reason"].format(nope=ask.nope))


def _absent_package(_rules: Rules, has: Facts, _ask: Question) -> str | None:
    return has.absent_reason


def _fa_sparse(rules: Rules, has: Facts, ask: Question) -> str | None:
    if ask.kv_cache_dtype not in {"auto", "float16", "bfloat16"}:
        return "FlashAttention MLA Sparse currently supports only FP16/BF16 KV cache"
    if absent := _fa_mla(rules, has, ask):
        return absent
    if ask.dcp:
        return "FlashAttention MLA Sparse does not support DCP for now"
    return None if ask.layer.sparse else "FlashAttention MLA Sparse requires model with index_topk"


def _sparse_sm90(_rules: Rules, has: Facts, ask: Question) -> str | None:
    if not ask.layer.sparse:
        return f"{has.name} requires sparse MLA"
    if ask.layer.head_size - ask.rope != 512:
        return f"{has.name} requires kv_lora_rank=512"
    return None if ask.rope in {0, 64} else f"{has.name} requires qk_rope_head_dim in (0, 64)"


def _sparse_sm120(_rules: Rules, has: Facts, ask: Question) -> str | None:
    if ask.kv_cache_dtype not in has.kv:
        return "kv_cache_dtype not supported"
    return None if ask.layer.sparse else f"{has.name} requires a model with index_topk config"


def _sparse_no_ds(_rules: Rules, has: Facts, ask: Question) -> str | None:
    bad = ask.kv_cache_dtype == "fp8_ds_mla"
    return f"{has.name} SM10 does not support fp8_ds_mla kv-cache dtype" if bad else None


def _sparse_no_rope(_rules: Rules, _has: Facts, ask: Question) -> str | None:
    rank = ask.layer.head_size - ask.rope
    if ask.rope or (ask.nope == 256 and rank == 512):
        return None
    return (
        "FlashInfer native no-rope MLA requires qk_nope_head_dim=256 and kv_lora_rank=512, "
        f"but got qk_nope_head_dim={ask.nope}, kv_lora_rank={rank}"
    )


def _sparse_nope(rules: Rules, has: Facts, ask: Question) -> str | None:
    narrow = None if ask.rope == 0 and "sparse_no_rope" in has.combination else _nope(rules, has, ask)
    if narrow or ask.layer.sparse:
        return narrow
    return "FlashInfer MLA Sparse requires model with index_topk config"


def _fa4_sparse(_rules: Rules, _has: Facts, ask: Question) -> str | None:
    if "fa4" in ask.without:
        return "FA4 is unavailable"
    if not ask.layer.sparse:
        return "FA4 sparse MLA requires index_topk % 128 == 0, got None"
    dims = (ask.layer.head_size - ask.rope, ask.rope)
    if dims != (512, 64):
        return f"FA4 sparse MLA requires (kv_lora_rank, qk_rope_head_dim) == (512, 64), got {dims}"
    if ask.heads in {8, 16, 32, 64, 128}:
        return None
    counts = (8, 16, 32, 64, 128)
    return f"FA4 sparse MLA requires {counts} gathered query heads, got num_heads={ask.heads} * dcp_size=1"


def _nvfp4_on_fa2(_rules: Rules, _has: Facts, ask: Question) -> str | None:
    if not ask.kv_cache_dtype.startswith("nvfp4") or ask.major not in {8, 9, 12}:
        return None
    if ask.layer.head_size == 64:
        return "fa2 prefill misreads an NVFP4 KV cache at head_size 64"
    return "the sink prefill wrapper cannot read an NVFP4 KV cache" if ask.layer.sink else None


def _latent_512(_rules: Rules, has: Facts, ask: Question) -> str | None:
    if ask.layer.head_size != 512:
        return None
    rule, (major, minor) = has.latent_512, ask.capability
    if ask.kv_cache_dtype in rule["kv"] and major == 9:
        return f"{has.name} supports head_size 512 only for rope-free (NoPE) models" if ask.rope else None
    return (
        f"{has.name} supports head_size 512 only with {rule['words']} kv-cache on SM90 (NoPE), got "
        f"kv_cache_dtype={ask.kv_cache_dtype}, capability=DeviceCapability(major={major}, minor={minor})"
    )


def _nvfp4_ds_cc10(_rules: Rules, has: Facts, ask: Question) -> str | None:
    if ask.kv_cache_dtype != "nvfp4_ds_mla" or ask.major == 10:
        return None
    return f"{has.name} only supports the nvfp4_ds_mla kv-cache dtype on SM100 (Blackwell)"


COMBINATIONS: Mapping[str, Callable[[Rules, Facts, Question], str | None]] = {
    "sink_cc9": _sink_cc9,
    "mm_prefix_fp8_cc9": _mm_prefix_fp8_cc9,
    "fa_fp8": _fa_fp8,
    "mm_prefix_fa4": _mm_prefix_fa4,
    "fa_causal": _fa_causal,
    "fa4_causal": _fa4_causal,
    "fa_mla": _fa_mla,
    "flashmla_dense": _flashmla_dense,
    "nope": _nope,
    "fa_sparse": _fa_sparse,
    "sparse_sm90": _sparse_sm90,
    "sparse_sm120": _sparse_sm120,
    "sparse_no_ds": _sparse_no_ds,
    "sparse_no_rope": _sparse_no_rope,
    "sparse_nope": _sparse_nope,
    "absent_package": _absent_package,
    "fa4_sparse": _fa4_sparse,
    "nvfp4_on_fa2": _nvfp4_on_fa2,
    "nvfp4_ds_cc10": _nvfp4_ds_cc10,
    "latent_512": _latent_512,
}
