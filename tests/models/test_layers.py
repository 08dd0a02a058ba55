import pytest

from kvroom.errors import BadConfig
from kvroom.models import catalogue
from kvroom.models.config import read_config
from kvroom.models.defaults import with_class_defaults
from kvroom.models.fields import Fields
from kvroom.models.layers import Layers, read_layers
from kvroom.models.shape import (
    AttentionCache,
    AttentionKind,
    CompressorCache,
    IndexerCache,
    MlaCache,
    ModelShape,
    StateCache,
    StateKind,
)

SMALL = {
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}


def read(model_type: str, architecture: str, **fields: object) -> Layers:
    config = {**SMALL, "model_type": model_type, "architectures": [architecture], **fields}
    return read_layers(Fields(with_class_defaults(config)), architecture)


def packaged(name: str) -> ModelShape:
    entry = catalogue.find(name)
    assert entry is not None
    return read_config(entry.config, name=name, hf_quant_config=entry.hf_quant_config)


def windows(shape: ModelShape | Layers) -> list[int | None]:
    return [layer.cache.window for layer in shape.caches]  # type: ignore[union-attr]


class TestWindows:
    def test_mistral_slides_on_every_layer(self) -> None:
        assert windows(read("mistral", "MistralForCausalLM", sliding_window=4096)) == [4096] * 8

    def test_a_null_or_zero_window_is_none(self) -> None:
        assert windows(read("mistral", "MistralForCausalLM", sliding_window=None)) == [None] * 8
        assert windows(read("mistral", "MistralForCausalLM", sliding_window=0)) == [None] * 8

    def test_layer_types_choose_the_layers(self) -> None:
        types = ["sliding_attention", "full_attention"] * 4
        shape = read("mistral", "MistralForCausalLM", sliding_window=128, layer_types=types)

        assert windows(shape) == [128, None] * 4

    def test_qwen_uses_its_window_only_when_switched_on(self) -> None:
        window = {"sliding_window": 4096, "max_window_layers": 0}

        assert windows(read("qwen2", "Qwen2ForCausalLM", **window)) == [None] * 8
        assert windows(read("qwen2", "Qwen2ForCausalLM", use_sliding_window=True, **window)) == [4096] * 8

    def test_qwen_with_windows_on_some_layers_is_priced_in_full_and_says_so(self) -> None:
        shape = read("qwen2", "Qwen2ForCausalLM", use_sliding_window=True, sliding_window=64, max_window_layers=4)

        assert windows(shape) == [None] * 8
        assert "some layers only" in shape.assumptions[0]

    @pytest.mark.parametrize(
        ("kind", "architecture", "fields", "expected"),
        [
            ("gemma2", "Gemma2ForCausalLM", {}, "SFSFSFSF"),
            ("gemma3_text", "Gemma3ForCausalLM", {}, "SSSSSFSS"),
            ("gemma3_text", "Gemma3ForCausalLM", {"sliding_window_pattern": 2}, "SFSFSFSF"),
            ("cohere2", "Cohere2ForCausalLM", {}, "SSSFSSSF"),
            ("exaone4", "Exaone4ForCausalLM", {"sliding_window_pattern": "LLLG"}, "SSSFSSSF"),
            ("olmo3", "Olmo3ForCausalLM", {}, "SSSFSSSF"),
            ("gpt_oss", "GptOssForCausalLM", {"layer_types": ["full_attention"] * 8}, "SFSFSFSF"),
            ("granite_swa", "GraniteSWAForCausalLM", {}, "FSSSFSSS"),
            ("afmoe", "AfmoeForCausalLM", {}, "SSSFSSSF"),
            ("ministral", "MinistralForCausalLM", {}, "SSSSSSSS"),
        ],
    )
    def test_patterns_of_the_configuration_classes(
        self, kind: str, architecture: str, fields: dict, expected: str
    ) -> None:
        shape = read(kind, architecture, sliding_window=128, **fields)

        assert ["F" if each is None else "S" for each in windows(shape)] == list(expected)

    def test_cohere_2_leaves_out_the_current_token(self) -> None:
        shape = read("cohere2", "Cohere2ForCausalLM", sliding_window=4096)

        cache = shape.caches[0].cache
        assert isinstance(cache, AttentionCache)
        assert (cache.window, cache.inclusive_window) == (4096, True)

    def test_sinks(self) -> None:
        assert all(layer.cache.sinks for layer in packaged("openai/gpt-oss-20b").caches)  # type: ignore[union-attr]
        assert not any(layer.cache.sinks for layer in packaged("Qwen/Qwen3-8B").caches)  # type: ignore[union-attr]

    def test_llama_4_without_a_chunk_attends_in_full(self) -> None:
        shape = read("llama4_text", "Llama4ForCausalLM", attention_chunk_size=None)

        assert {layer.cache.kind for layer in shape.caches} == {AttentionKind.FULL}  # type: ignore[union-attr]


class TestSharing:
    def test_layers_that_share_a_cache_publish_none(self) -> None:
        shape = packaged("google/gemma-3n-E4B-text")

        assert len(shape.caches) == 20
        assert shape.caches[-1].index == 19
        assert windows(shape).count(None) == 4

    def test_gemma_4_has_other_heads_on_its_full_layers(self) -> None:
        shape = packaged("google/gemma-4-31B-it")

        sizes = {(c.cache.kind, c.cache.kv_heads, c.cache.head_size) for c in shape.caches}  # type: ignore[union-attr]
        assert sizes == {(AttentionKind.SLIDING, 16, 256), (AttentionKind.FULL, 4, 512)}

    def test_blocks_without_attention_publish_none(self) -> None:
        shape = packaged("nvidia/Llama-3_3-Nemotron-Super-49B-v1")

        assert (shape.layers, len(shape.caches)) == (80, 49)
        assert {layer.cache.kv_heads for layer in shape.caches} == {8}  # type: ignore[union-attr]


class TestLatent:
    def test_glm_shares_indexers(self) -> None:
        shape = packaged("zai-org/GLM-5.2")

        indexers = [layer.index for layer in shape.caches if isinstance(layer.cache, IndexerCache)]
        assert indexers[:5] == [0, 1, 2, 6, 10]
        assert sum(isinstance(layer.cache, MlaCache) for layer in shape.caches) == 78

    def test_a_pattern_overrides_the_schedule(self) -> None:
        entry = catalogue.find("zai-org/GLM-5.2")
        assert entry is not None
        pattern = "FS" * 39

        shape = read_config(entry.config, name="test", overrides={"index_topk_pattern": pattern})

        assert sum(isinstance(layer.cache, IndexerCache) for layer in shape.caches) == 39

    def test_deepseek_v4_keeps_five_caches_on_its_finest_layers(self) -> None:
        shape = packaged("deepseek-ai/DeepSeek-V4-Flash")

        by_layer = [[x for x in shape.caches if x.index == index] for index in (0, 2, 3)]
        assert [len(layer) for layer in by_layer] == [1, 5, 3]
        assert [x.name for x in by_layer[1]] == [
            "attn.indexer.k_cache", "attn.indexer.compressor.state_cache", "attn.swa_cache", "attn",
            "attn.compressor.state_cache",
        ]  # fmt: skip
        assert by_layer[1][4].cache == CompressorCache(head_size=2048, window=8, block_size=4)
        assert by_layer[2][2].cache == CompressorCache(head_size=1024, window=128, block_size=8)

    def test_longcat_attends_twice_a_layer(self) -> None:
        shape = read(
            "longcat_flash", "LongcatFlashForCausalLM",
            kv_lora_rank=512, qk_rope_head_dim=64, num_layers=3, num_hidden_layers=6,
        )  # fmt: skip

        assert [layer.index for layer in shape.caches] == [0, 0, 1, 1, 2, 2]

    def test_minicpm_3_keeps_full_keys(self) -> None:
        cache = packaged("openbmb/MiniCPM3-4B").caches[0].cache

        assert cache == AttentionCache(AttentionKind.FULL, 40, 96, 96)


class TestRecurrent:
    def test_kimi_linear_counts_its_layers_from_one(self) -> None:
        linear = {
            "kda_layers": [1, 2, 3, 5, 6, 7],
            "full_attn_layers": [4, 8],
            "head_dim": 64,
            "num_heads": 16,
        }
        shape = read(
            "kimi_linear", "KimiLinearForCausalLM",
            linear_attn_config=linear, kv_lora_rank=512, qk_rope_head_dim=64,
        )  # fmt: skip

        assert [layer.index for layer in shape.caches if isinstance(layer.cache, MlaCache)] == [3, 7]
        assert [x.cache.kind for x in shape.caches if isinstance(x.cache, StateCache)] == [StateKind.KDA] * 6

    def test_falcon_h1_keeps_both_in_every_layer(self) -> None:
        shape = packaged("tiiuae/Falcon-H1-0.5B-Base")

        assert len(shape.caches) == 72
        assert isinstance(shape.caches[0].cache, AttentionCache)
        assert isinstance(shape.caches[1].cache, StateCache)

    def test_zamba_2_builds_its_shared_attention_first(self) -> None:
        types = ["mamba", "hybrid", "mamba", "hybrid", "hybrid", "mamba", "mamba", "mamba"]
        shape = read(
            "zamba2", "Zamba2ForCausalLM", layers_block_type=types, num_mem_blocks=2, mamba_d_state=64,
            n_mamba_heads=8, mamba_ngroups=1,
        )  # fmt: skip

        assert [layer.name for layer in shape.caches[:4]] == ["attn.0", "attn.2", "attn.1", "mixer"]
        assert len(shape.caches) == 3 + 8
        assert shape.caches[0].cache.head_size == 128  # type: ignore[union-attr]

    def test_states_of_qwen_3_5_stay_in_float32(self) -> None:
        state = next(x.cache for x in packaged("Qwen/Qwen3.6-27B").caches if isinstance(x.cache, StateCache))

        assert (state.kind, state.state_dtype) == (StateKind.GATED_DELTA_NET, "float32")
        assert (state.heads, state.key_heads, state.head_size, state.key_size) == (48, 16, 128, 128)

    def test_minimax_text_takes_its_list_of_layers(self) -> None:
        shape = read("minimax_text_01", "MiniMaxText01ForCausalLM", attn_type_list=[0, 0, 0, 1] * 2, head_dim=64)

        assert [isinstance(layer.cache, AttentionCache) for layer in shape.caches] == [
            False,
            False,
            False,
            True,
        ] * 2

    def test_a_layer_that_is_neither_is_refused(self) -> None:
        with pytest.raises(BadConfig, match="'quantum' is neither"):
            read("qwen3_next", "Qwen3NextForCausalLM", layer_types=["quantum"] * 8)


class TestDrafts:
    @pytest.mark.parametrize(
        ("model", "indices"),
        [
            ("deepseek-ai/DeepSeek-V3", [61]),
            ("deepseek-ai/DeepSeek-V3.2", [61, 61]),
            ("zai-org/GLM-4.5-Air", [46]),
            ("Qwen/Qwen3.6-27B", [64]),
            ("deepseek-ai/DeepSeek-V4-Flash", [43]),
            ("Qwen/Qwen3-8B", []),
        ],
    )
    def test_multi_token_prediction_layers_count_on(self, model: str, indices: list[int]) -> None:
        assert [layer.index for layer in packaged(model).draft_caches] == indices

    def test_the_draft_of_a_hybrid_attends_in_full(self) -> None:
        draft = packaged("Qwen/Qwen3.6-27B").draft_caches[0].cache

        assert draft == AttentionCache(AttentionKind.FULL, 4, 256, 256)


class TestEncoders:
    def test_llama_vision_looks_at_the_image_on_its_cross_layers(self) -> None:
        shape = packaged("meta-llama/Llama-3.2-11B-Vision-Instruct")

        cross = [x.index for x in shape.caches if x.cache.kind is AttentionKind.CROSS]  # type: ignore[union-attr]
        assert cross == [3, 8, 13, 18, 23, 28, 33, 38]
        assert shape.encoder_len == 6404

    def test_a_bidirectional_gemma_keeps_nothing(self) -> None:
        layers = read("gemma3_text", "Gemma3TextModel", use_bidirectional_attention=True, sliding_window=512)

        assert layers.caches == ()
