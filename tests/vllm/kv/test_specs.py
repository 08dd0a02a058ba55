from __future__ import annotations

import pytest
from tests.vllm.kv.makers import settings, shape

from kvroom.errors import EngineError
from kvroom.models.shape import AttentionCache, AttentionKind, CompressorCache, IndexerCache, MlaCache, ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.kv.pages import SpecKind
from kvroom.vllm.kv.specs import Specs, specs_of

FULL = AttentionCache(AttentionKind.FULL, 8, 128, 128)
WINDOW = AttentionCache(AttentionKind.SLIDING, 8, 128, 128, 1024)


def specs(
    model: ModelShape, release: str = "0.32.0", backend: str = "FLASH_ATTN", block: int | None = None, **changes
) -> Specs:
    args = changes.pop("args", {})
    return specs_of(model, EngineArgs(**args), settings(release, **changes), backend, block)


def test_heads_are_divided_then_replicated() -> None:
    model = shape([FULL])
    units = [specs(model, args={"tensor_parallel_size": tp}).layers[0].spec.unit_bytes for tp in (1, 4, 16)]
    assert units == [4096, 1024, 512]


def test_layers_may_keep_the_models_dtype() -> None:
    model = shape([FULL] * 4)
    skipped = {"kv_cache_dtype_skip_layers": ("0", "3")}
    found = specs(model, kv_cache_dtype="fp8", args=skipped)
    assert [layer.spec.unit_bytes for layer in found.layers] == [4096, 2048, 2048, 4096]


def test_turboquant_leaves_the_outermost_layers_alone() -> None:
    found = specs(shape([FULL] * 6), kv_cache_dtype="turboquant_k8v4")
    assert [layer.spec.unit_bytes for layer in found.layers] == [4096, 4096, 1568, 1568, 4096, 4096]


def test_windows_can_be_switched_off_only_where_every_layer_has_one() -> None:
    off = {"disable_sliding_window": True}
    assert specs(shape([WINDOW] * 2), args=off).layers[0].spec.kind is SpecKind.FULL
    assert specs(shape([WINDOW, FULL]), args=off).layers[0].spec.kind is SpecKind.SLIDING


def test_chunks_were_stored_in_full_before_their_own_spec() -> None:
    chunked = shape([AttentionCache(AttentionKind.CHUNKED, 8, 128, 128, 8192)])
    assert specs(chunked, "0.9.2").layers[0].spec.kind is SpecKind.FULL
    assert specs(chunked, "0.10.2").layers[0].spec.kind is SpecKind.CHUNKED


def test_cross_attention_stores_the_encoder() -> None:
    cross = shape([AttentionCache(AttentionKind.CROSS, 8, 64, 64)], encoder_len=1500)
    assert specs(cross, "0.12.0").layers[0].spec.window == 1500
    assert specs(cross, "0.13.0").layers[0].spec.window == 8192


def test_draft_layers_come_last() -> None:
    draft = shape([FULL] * 2)
    found = specs_of(shape([FULL] * 3), EngineArgs(), settings(), "FLASH_ATTN", None, draft=draft)
    assert [layer.index for layer in found.layers] == [0, 1, 2, 3, 4]


def test_indexers_store_bytes_beside_the_latent_vector() -> None:
    model = shape([IndexerCache(132), MlaCache(512, 64, sparse=True)], "DeepseekV32ForCausalLM")
    found = specs(model, backend="FLASHMLA_SPARSE", block=64, kv_cache_dtype="fp8")
    assert [layer.spec.page_bytes for layer in found.layers] == [64 * 132, 64 * 656]


V4 = shape(
    [
        IndexerCache(132, 4),
        CompressorCache(512, 8, 4),
        MlaCache(448, 64, sparse=True, window=128),
        MlaCache(448, 64, sparse=True, compress_ratio=4),
        CompressorCache(2048, 8, 4),
        MlaCache(448, 64, sparse=True, compress_ratio=128),
        CompressorCache(1024, 128, 8),
    ],
    "DeepseekV4ForCausalLM",
)


def test_deepseek_v4_pages() -> None:
    found = specs(V4, backend="FLASHMLA_SPARSE_DSV4", block=256, kv_cache_dtype="fp8")
    assert [layer.spec.page_bytes for layer in found.layers] == [8640, 8640, 37440, 37440, 32832, 1728, 32832]
    assert [layer.spec.block_size for layer in found.layers] == [256, 4, 64, 256, 4, 256, 8]


def test_deepseek_v4_took_auto_for_fp8_only_since_0_30() -> None:
    asked = {"backend": "FLASHMLA_SPARSE_DSV4", "block": 256}
    packed = specs(V4, "0.30.0", **asked)
    assert packed == specs(V4, "0.30.0", **asked, kv_cache_dtype="fp8")
    with pytest.raises(EngineError) as refusal:
        specs(V4, "0.28.0", **asked)
    assert refusal.value.problem == "DeepseekV4 fp8_ds_mla layout only supports fp8 kv-cache, got auto"


def test_deepseek_v4_on_flashinfer_stores_plain_rows() -> None:
    found = specs(V4, backend="FLASHINFER_MLA_SPARSE_DSV4", block=256)
    assert found.layers[3].spec.page_bytes == 64 * 512 * 2
