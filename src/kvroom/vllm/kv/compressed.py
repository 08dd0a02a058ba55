"""DeepSeek-V4: a window of rows on every layer, and states that stand for several tokens behind it.

Mirrors models/deepseek_v4: attention.py, compressor.py, and v1/attention/backends/mla/sparse_swa.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.errors import EngineError
from kvroom.models.shape import CompressorCache, IndexerCache, MlaCache
from kvroom.vllm.kv.formats import latent_bytes
from kvroom.vllm.kv.pages import Spec, SpecKind
from kvroom.vllm.rules import Rules

ROW_BYTES = 584
"""A packed fp8 row: 448 bytes without position, 128 with, 8 of scales."""
PACKED_ALIGNMENT, PLAIN_ALIGNMENT = 576, 512
"""What pages are rounded up to."""
WINDOW_BLOCK = 64
STATE_BYTES = 4
"""The compressor keeps float32."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How the rows of one launch are stored."""

    form: str
    """``fp8_ds_mla`` for packed rows, else the KV cache dtype."""
    dtype: str
    """The model's dtype."""
    block: int
    """Tokens of a block of compressed states."""

    @property
    def alignment(self) -> int:
        """Bytes that pages are rounded up to a multiple of."""
        return PACKED_ALIGNMENT if self.form == "fp8_ds_mla" else PLAIN_ALIGNMENT

    def latent(self, cache: MlaCache) -> Spec:
        """The spec of a window of rows, or of the compressed states."""
        size = cache.kv_lora_rank + cache.rope_size
        unit = ROW_BYTES if self.form == "fp8_ds_mla" else latent_bytes(size, self.form, self.dtype)
        return Spec(
            SpecKind.MLA if cache.window is None else SpecKind.SLIDING_MLA,
            self.block if cache.window is None else WINDOW_BLOCK,
            unit,
            tokens_per_state=cache.compress_ratio if cache.window is None else 1,
            alignment=self.alignment,
            window=cache.window,
            identity=("rows", size, self.form),
        )

    def indexer(self, cache: IndexerCache) -> Spec:
        """The spec of an indexer's keys."""
        return Spec(
            SpecKind.MLA,
            self.block,
            latent_bytes(cache.head_size, "auto", cache.dtype),
            tokens_per_state=cache.compress_ratio,
            alignment=self.alignment,
            identity=("indexer", cache.head_size, cache.dtype),
        )

    def compressor(self, cache: CompressorCache) -> Spec:
        """The spec of the states of tokens that are not compressed yet."""
        return Spec(
            SpecKind.SLIDING_MLA,
            cache.block_size,
            STATE_BYTES * cache.head_size,
            alignment=self.alignment,
            window=cache.window,
            identity=("compressor", cache.head_size),
        )


def row_format(cache_dtype: str, backend: str, rules: Rules) -> str:
    """Packed fp8, or plain rows where a FlashInfer backend runs the model.

    Mirrors models/deepseek_v4/attention.py: _resolve_dsv4_kv_cache_dtype. Raises EngineError with its
    text for a dtype that packed rows cannot hold.
    """
    if "FLASHINFER" in backend:
        return cache_dtype
    known = rules["kv_v4_formats"]
    if cache_dtype.startswith("fp8") or (cache_dtype == "auto" and known["auto_is_fp8"]):
        return "fp8_ds_mla"
    raise EngineError(known["refusal"].format(dtype=cache_dtype), "Pass --kv-cache-dtype fp8.")
