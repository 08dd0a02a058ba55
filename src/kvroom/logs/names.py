"""How logs speak of attention backends, and the names that the flags use."""

from __future__ import annotations

_SPOKEN = {
    "flash attention": "FLASH_ATTN",
    "flashattention": "FLASH_ATTN",
    "flashinfer": "FLASHINFER",
    "flashmla": "FLASHMLA",
    "xformers": "XFORMERS",
    "triton attention": "TRITON_ATTN",
    "triton": "TRITON_ATTN",
    "triton mla": "TRITON_MLA",
    "cutlass mla": "CUTLASS_MLA",
    "flashinfer mla": "FLASHINFER_MLA",
    "flashattention mla": "FLASH_ATTN_MLA",
    "flexattention": "FLEX_ATTENTION",
    "rocm attention": "ROCM_ATTN",
    "rocmflashattention": "ROCM_FLASH",
    "aiter mla": "ROCM_AITER_MLA",
    "aiter flash attention": "ROCM_AITER_FA",
    "torch sdpa": "TORCH_SDPA",
    "pallas": "PALLAS",
    "ipex attention": "IPEX",
}


def backend_name(words: str) -> str:
    """VLLM's name of the backend that a log calls ``words``; the words themselves where it is unknown."""
    words = words.strip().removeprefix("AttentionBackendEnum.").removesuffix(".")
    return _SPOKEN.get(words.lower().removesuffix(" backend"), words)
