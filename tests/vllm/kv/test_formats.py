"""Bytes of each KV cache dtype, as the backends' customize_spec of vLLM 0.32.0 gave them."""

from __future__ import annotations

import pytest
from tests.vllm.kv.makers import rules

from kvroom.vllm.kv.formats import attention_bytes, latent_bytes, sparse_format, storage_dtype


@pytest.mark.parametrize(
    ("cache_dtype", "by_size"),
    [
        ("auto", {64: 256, 128: 512, 256: 1024}),
        ("fp8", {64: 128, 128: 256, 256: 512}),
        ("fp8_per_token_head", {64: 136, 128: 264, 256: 520}),
        ("int8_per_token_head", {64: 136, 128: 264, 256: 520}),
        ("int4_per_token_head", {64: 72, 128: 136, 256: 264}),
        ("nvfp4", {64: 72, 128: 144, 256: 288}),
        ("turboquant_k8v4", {64: 100, 128: 196, 256: 388}),
        ("turboquant_4bit_nc", {64: 70, 128: 134, 256: 262}),
        ("turboquant_k3v4_nc", {64: 62, 128: 118, 256: 230}),
        ("turboquant_3bit_nc", {64: 54, 128: 102, 256: 198}),
    ],
)
def test_a_token_of_one_head(cache_dtype: str, by_size: dict[int, int]) -> None:
    for size, expected in by_size.items():
        assert attention_bytes(1, size, size, cache_dtype, "bfloat16", "full", rules("0.32.0")) == expected
        assert attention_bytes(3, size, size, cache_dtype, "bfloat16", "full", rules("0.32.0")) == 3 * expected


def test_windowed_layers_were_not_packed_at_first() -> None:
    sizes = [attention_bytes(1, 128, 128, "nvfp4", "bfloat16", "sliding", rules(r)) for r in ("0.20.2", "0.21.0")]
    assert sizes == [256, 144]


def test_values_have_a_size_of_their_own_since_0_20() -> None:
    sizes = [attention_bytes(1, 192, 128, "auto", "bfloat16", "full", rules(r)) for r in ("0.19.1", "0.20.2")]
    assert sizes == [768, 640]


def test_latent_vectors() -> None:
    assert latent_bytes(576, "auto", "bfloat16") == 1152
    assert latent_bytes(576, "fp8", "bfloat16") == 576
    assert latent_bytes(576, "fp8_ds_mla", "bfloat16") == 656
    assert latent_bytes(576, "nvfp4_ds_mla", "bfloat16") == 352


def test_sparse_layers_pack_fp8() -> None:
    assert sparse_format("fp8", "FLASHMLA_SPARSE", rules("0.16.0")) == "fp8_ds_mla"
    assert sparse_format("bfloat16", "FLASHMLA_SPARSE", rules("0.32.0")) == "bfloat16"


def test_elements() -> None:
    assert [storage_dtype(each, "float16") for each in ("auto", "bfloat16", "fp8")] == ["float16", "bfloat16", "uint8"]
