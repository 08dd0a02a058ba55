import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.errors import BadConfig, KvroomError
from kvroom.models import catalogue
from kvroom.models.config import read_config
from kvroom.models.shape import AttentionKind, ModelShape

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def read(changes: dict | None = None, **options: object) -> ModelShape:
    return read_config({**LLAMA, **(changes or {})}, name="test", **options)


def test_a_plain_config_is_read_whole() -> None:
    shape = read(source="a test")

    assert (shape.layers, shape.heads, shape.kv_heads, shape.head_size) == (32, 32, 8, 128)
    assert (shape.hidden_size, shape.intermediate_size, shape.vocab_size) == (4096, 14336, 128256)
    assert (shape.name, shape.source, shape.architecture) == ("test", "a test", "LlamaForCausalLM")
    assert shape.position_limits == (("max_position_embeddings", 131072),)
    assert len(shape.caches) == 32
    assert shape.assumptions == ()
    assert shape.total_params == pytest.approx(8.03e9, rel=0.001)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": 10**9}, "1000000000 layers is more than any model has"),
        ({"num_hidden_layers": -1}, "'num_hidden_layers' is -1"),
        ({"num_hidden_layers": "32"}, "should be an integer, not '32'"),
        ({"num_hidden_layers": True}, "should be an integer, not True"),
        ({"num_attention_heads": -32}, "'num_attention_heads' is -32"),
        ({"num_attention_heads": float("nan")}, "should be an integer, not nan"),
        ({"num_attention_heads": float("inf")}, "should be an integer, not inf"),
        ({"num_key_value_heads": 0}, "32 attention heads cannot share 0 KV heads"),
        ({"num_key_value_heads": 7}, "32 attention heads cannot share 7 KV heads"),
        ({"hidden_size": 10**18}, "outside"),
        ({"hidden_size": [4096]}, "should be an integer, not a list"),
        ({"layer_types": ["full_attention"] * 3}, "3 entries for 32 layers"),
        ({"layer_types": [1] * 32}, "one str a layer"),
        ({"architectures": "LlamaForCausalLM"}, "'architectures' should be a list"),
        ({"architectures": [7]}, "list of class names"),
        ({"torch_dtype": "int3"}, "dtype 'int3'"),
        ({"rope_scaling": {"type": 5}}, "should be a short text"),
        ({"max_position_embeddings": -5}, "outside"),
        ({"sliding_window": -1}, "outside"),
        ({"num_attention_heads": 8192, "num_key_value_heads": 8192, "head_dim": None}, "have no width"),
        (
            {"model_type": "mimo", "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 65},
            "65 multi-token",
        ),
    ],
)
def test_a_field_that_cannot_be_is_one_clear_error(changes: dict, says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        read(changes)


@pytest.mark.parametrize("raw", [[], "llama", None, 5])
def test_what_is_no_object_is_refused(raw: object) -> None:
    with pytest.raises(BadConfig, match="not a JSON object"):
        read_config(raw, name="test")  # type: ignore[arg-type]


def test_a_config_nested_in_itself_is_refused() -> None:
    cycle: dict = {"model_type": "llava"}
    cycle["text_config"] = cycle

    with pytest.raises(BadConfig, match="without end"):
        read_config(cycle, name="test")


def test_without_model_type_or_layers_it_says_what_is_missing() -> None:
    with pytest.raises(BadConfig, match="num_hidden_layers"):
        read_config({"hidden_size": 64}, name="test")


def test_an_unknown_architecture_is_priced_as_attention_and_says_so() -> None:
    shape = read({"architectures": ["WonderForCausalLM"], "model_type": "wonder"})

    assert len(shape.caches) == 32
    assert "WonderForCausalLM is not known" in shape.assumptions[0]


def test_a_known_architecture_under_a_private_model_type_is_no_assumption() -> None:
    shape = read({"model_type": "my_finetune"})

    assert shape.assumptions == ()


def test_an_architecture_decides_where_the_model_type_is_private() -> None:
    entry = catalogue.find("ai21labs/Jamba-v0.1")
    assert entry is not None

    shape = read_config({**entry.config, "model_type": "my_jamba"}, name="test")

    assert shape.has_state


def test_overrides_are_merged_deeply() -> None:
    raw = {
        **LLAMA,
        "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8192},
    }

    shape = read_config(raw, name="test", overrides={"rope_scaling": {"factor": 4.0}, "num_key_value_heads": 4})

    assert shape.rope.factor == 4.0
    assert shape.rope.original_max_position_embeddings == 8192
    assert shape.kv_heads == 4


def test_overrides_reach_a_nested_language_model() -> None:
    entry = catalogue.find("google/gemma-3-27b-it")
    assert entry is not None

    shape = read_config(entry.config, name="test", overrides={"text_config": {"sliding_window": 512}})

    assert {layer.cache.window for layer in shape.caches} == {512, None}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"torch_dtype": None}, "bfloat16"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"torch_dtype": "torch.float32"}, "float32"),
        ({"torch_dtype": None, "dtype": "float16"}, "float16"),
        ({"torch_dtype": "auto"}, "bfloat16"),
    ],
)
def test_dtype(changes: dict, dtype: str) -> None:
    assert read(changes).dtype == dtype


def test_class_defaults_stand_in_for_what_a_config_leaves_out() -> None:
    entry = catalogue.find("google/gemma-3-27b-it")
    assert entry is not None
    assert "vocab_size" not in entry.config["text_config"]

    shape = read_config(entry.config, name="test")

    assert shape.vocab_size == 262208
    assert shape.position_limits == (("max_position_embeddings", 131072),)
    assert shape.is_prefix_lm_multimodal
    assert shape.vision is not None
    assert shape.vision.tokens_per_item == 256


def test_fields_under_a_class_own_names_are_found() -> None:
    gpt2 = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 1024,
        "n_head": 16,
        "n_layer": 24,
    }

    shape = read_config(gpt2, name="test")

    assert (shape.hidden_size, shape.heads, shape.layers) == (1024, 16, 24)
    assert shape.position_limits[0] == ("max_position_embeddings", 1024)


def test_an_older_vision_config_keeps_its_language_fields_at_the_top() -> None:
    entry = catalogue.find("Qwen/Qwen2-VL-2B-Instruct")
    assert entry is not None

    shape = read_config(entry.config, name="test")

    assert (shape.layers, shape.kv_heads, shape.tied_embeddings) == (28, 2, True)


def test_limits_keep_vllms_order_and_leave_out_what_means_no_limit() -> None:
    shape = read({"seq_length": 4096, "model_max_length": 1e30, "max_seq_len": 8192})

    assert shape.position_limits == (
        ("max_position_embeddings", 131072),
        ("max_seq_len", 8192),
        ("seq_length", 4096),
    )


@pytest.mark.parametrize(
    ("quantization", "hint"),
    [
        (None, None),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8", "quant_algo": "FP8"}, "fp8"),
        (
            {
                "quant_method": "modelopt",
                "quantization": {"kv_cache_quant_algo": "NVFP4", "quant_algo": "NVFP4"},
            },
            "nvfp4",
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None}, None),
    ],
)
def test_kv_cache_dtype_that_the_checkpoint_asks_for(quantization: dict | None, hint: str | None) -> None:
    assert read({"quantization_config": quantization}).kv_cache_dtype_hint == hint


def test_hf_quant_config_alone_gives_the_hint() -> None:
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}

    assert read(hf_quant_config=beside).kv_cache_dtype_hint == "fp8"


@pytest.mark.parametrize(
    ("model", "routed", "per_token", "width", "layers"),
    [
        ("Qwen/Qwen3-30B-A3B", 128, 8, 768, 48),
        ("deepseek-ai/DeepSeek-V3", 256, 8, 2048, 58),
        ("openai/gpt-oss-20b", 32, 4, 2880, 24),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 128, 1, 8192, 24),
        ("ai21labs/Jamba-v0.1", 16, 2, 14336, 16),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 128, 6, 1856, 23),
        ("google/gemma-4-26B-A4B", 128, 8, 704, 30),
        ("google/gemma-4-31B-it", 0, 0, 0, 0),
        ("Qwen/Qwen3-8B", 0, 0, 0, 0),
    ],
)
def test_experts(model: str, routed: int, per_token: int, width: int, layers: int) -> None:
    entry = catalogue.find(model)
    assert entry is not None

    experts = read_config(entry.config, name=model).experts

    assert (experts.routed, experts.per_token, experts.intermediate_size, experts.layers) == (
        routed, per_token, width, layers,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "pooling", "caches"),
    [
        ("BAAI/bge-large-en", True, 0),
        ("answerdotai/ModernBERT-base", True, 0),
        ("Alibaba-NLP/gte-Qwen2-7B-instruct", True, 0),
        ("intfloat/e5-mistral-7b-instruct", True, 32),
        ("THUDM/glm-4-9b", False, 40),
        ("openai-community/gpt2", False, 12),
    ],
)
def test_pooling_models(model: str, pooling: bool, caches: int) -> None:
    entry = catalogue.find(model)
    assert entry is not None

    shape = read_config(entry.config, name=model)

    assert (shape.is_pooling, len(shape.caches)) == (pooling, caches)


def test_an_encoder_gives_cross_attention_and_its_length() -> None:
    entry = catalogue.find("openai/whisper-tiny")
    assert entry is not None

    shape = read_config(entry.config, name="whisper")

    kinds = [layer.cache.kind for layer in shape.caches]  # type: ignore[union-attr]
    assert kinds == [AttentionKind.FULL, AttentionKind.CROSS] * 4
    assert shape.is_encoder_decoder
    assert (shape.encoder_len, shape.layers) == (1500, 4)


def test_a_mamba_model_has_no_heads() -> None:
    config = {
        "model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "hidden_size": 4096, "num_heads": 128,
        "head_dim": 64, "state_size": 128, "num_hidden_layers": 64, "vocab_size": 32768, "n_groups": 8,
    }  # fmt: skip

    shape = read_config(config, name="test")

    assert (shape.heads, shape.kv_heads, len(shape.caches)) == (0, 0, 64)
    assert shape.position_limits == ()


def test_states_of_an_unknown_dtype_are_refused() -> None:
    entry = catalogue.find("Qwen/Qwen3.5-27B")
    assert entry is not None
    text = {**entry.config["text_config"], "mamba_ssm_dtype": "int3"}

    with pytest.raises(BadConfig, match="int3"):
        read_config({**entry.config, "text_config": text}, name="test")


def test_every_packaged_config_is_read_without_an_assumption() -> None:
    for name in catalogue.index():
        entry = catalogue.find(name)
        assert entry is not None
        shape = read_config(entry.config, name=name, hf_quant_config=entry.hf_quant_config)
        assert shape.caches or shape.is_pooling, name
        assert shape.assumptions == (), name
        assert shape.layers > 0, name


BASES = [
    "Qwen/Qwen3-8B", "google/gemma-3-27b-it", "google/gemma-4-E2B-text", "deepseek-ai/DeepSeek-V4-Flash",
    "zai-org/GLM-5.2", "Qwen/Qwen3.6-27B", "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "openai/whisper-tiny",
    "moonshotai/Kimi-K3", "meta-llama/Llama-4-Scout-17B-16E-Instruct", "XiaomiMiMo/MiMo-V2-Flash",
    "tiiuae/Falcon-H1-0.5B-Base", "nvidia/Llama-3_3-Nemotron-Super-49B-v1", "LiquidAI/LFM2.5-VL-1.6B",
]  # fmt: skip
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.sampled_from([10**9, 10**20, 1e300]), st.floats(),
    st.text(max_size=3), st.lists(st.one_of(st.integers(-1, 1), st.text(max_size=2)), max_size=3),
    st.dictionaries(st.sampled_from(["a", "rope_type", "factor"]), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(BASES), st.data())
def test_a_damaged_config_is_read_or_refused_but_never_breaks(model: str, data: st.DataObject) -> None:
    entry = catalogue.find(model)
    assert entry is not None
    config = copy.deepcopy(dict(entry.config))
    for _ in range(data.draw(st.integers(1, 3))):
        level = config
        nested = [name for name, value in config.items() if isinstance(value, dict) and value]
        if nested and data.draw(st.booleans()):
            level = config[data.draw(st.sampled_from(sorted(nested)))]
        field = data.draw(st.sampled_from(sorted(level)))
        if data.draw(st.booleans()):
            level[field] = data.draw(JUNK)
        elif len(level) > 1:
            del level[field]

    message, caches = "", 0
    try:
        caches = len(read_config(config, name=model).caches)
    except KvroomError as error:
        message = str(error)

    assert len(message) < 1000
    assert caches <= 6 * 2048
