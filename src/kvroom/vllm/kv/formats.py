"""KV cache dtypes: bytes of one token in one layer, packed as each release packs them.

Mirrors v1/kv_cache_interface.py (real_page_size_bytes to 0.27) and the backends' customize_spec since.
"""

from __future__ import annotations

from math import ceil

from kvroom.vllm.kv.pages import DTYPE_BYTES
from kvroom.vllm.rules import Rules

TURBOQUANT_BITS = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
"""Bits of keys and values of each preset (layers/quantization/turboquant/config.py)."""
DS_MLA_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""Bytes a token of DeepSeek's packed sparse formats."""
SCALES = 8
"""Two float32 scales, one for the key and one for the value of a head."""
PLAIN = ("auto", "bfloat16", "float16", "float32")


def storage_dtype(cache_dtype: str, dtype: str) -> str:
    """The element type that ``cache_dtype`` stores; ``dtype`` is the model's."""
    if cache_dtype == "auto":
        return dtype
    return cache_dtype if cache_dtype in PLAIN else "uint8"


def quantization(cache_dtype: str) -> str:
    """The name under which vLLM tells quantised caches apart, empty for none (KVQuantMode)."""
    if cache_dtype in PLAIN:
        return ""
    return "fp8" if cache_dtype.startswith("fp8") and "token_head" not in cache_dtype else cache_dtype


def attention_bytes(heads: int, size: int, size_v: int, cache_dtype: str, dtype: str, form: str, rules: Rules) -> int:
    """Bytes of one token of a layer with ``heads`` local KV heads.

    ``form`` is ``full``, ``sliding`` or ``other``: releases before 0.28 packed them differently.
    """
    if form == "other" or not rules["kv_own_value_size"]:
        size_v = size
    packed = cache_dtype not in PLAIN and form in rules["kv_packs"].get(_family(cache_dtype), ())
    if packed:
        return heads * _packed(size, size_v, cache_dtype)
    scales = SCALES if cache_dtype.endswith("_per_token_head") else 0
    return heads * ((size + size_v) * DTYPE_BYTES[storage_dtype(cache_dtype, dtype)] + scales)


def latent_bytes(size: int, cache_dtype: str, dtype: str) -> int:
    """Bytes of one token of an MLA layer whose latent vector has ``size`` elements."""
    if cache_dtype in DS_MLA_BYTES:
        return DS_MLA_BYTES[cache_dtype]
    if cache_dtype == "int4_per_token_head":
        return size // 2 + SCALES
    scales = SCALES if cache_dtype.endswith("_per_token_head") else 0
    return size * DTYPE_BYTES[storage_dtype(cache_dtype, dtype)] + scales


def sparse_format(cache_dtype: str, backend: str, rules: Rules) -> str:
    """The dtype that a sparse MLA layer stores under ``backend`` for ``--kv-cache-dtype``.

    Mirrors layers/attention/mla_attention.py: _canonicalize_sparse_mla_kv_cache_dtype.
    """
    if cache_dtype in DS_MLA_BYTES:
        return cache_dtype
    choice: dict[str, list[str]] = rules["kv_sparse_formats"]
    for name in (backend, "*"):
        if cache_dtype in choice.get(name, ()):
            return "fp8_ds_mla"
    return cache_dtype


def _family(cache_dtype: str) -> str:
    return cache_dtype.split("_", maxsplit=1)[0]


def _packed(size: int, size_v: int, cache_dtype: str) -> int:
    """Bytes of one head's token in a format that packs elements."""
    if cache_dtype in TURBOQUANT_BITS:
        key, value = TURBOQUANT_BITS[cache_dtype]
        slot = (size if key == 8 else ceil(size * key / 8) + 2) + ceil(size * value / 8) + 4
        return slot + slot % 2
    if cache_dtype.startswith("nvfp4"):
        return size // 2 + size // 16 + size_v // 2 + size_v // 16
    return size // 2 + size_v // 2 + SCALES
