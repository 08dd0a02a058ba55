from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vllm.backends.launch import choose, model, settings

from kvroom.devices.catalogue import custom_device, find_device
from kvroom.models.config import read_config
from kvroom.units import GIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.backends import choose_backend

QWEN, HYBRID = "Qwen/Qwen3-8B", "Qwen/Qwen3.6-27B"
DEEPSEEK, GPT_OSS, GEMMA = "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b", "google/gemma-3-27b-it"
RELEASES = [
    "0.8.5",
    "0.9.2",
    "0.10.2",
    "0.11.0",
    "0.11.2",
    "0.13.0",
    "0.16.0",
    "0.20.2",
    "0.24.0",
    "0.28.0",
    "0.33.0",
]


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ("0.8.5", "Using Flash Attention backend on V1 engine."),
        ("0.11.0", "Using Flash Attention backend on V1 engine."),
        ("0.11.2", "Using FLASH_ATTN backend."),
        (
            "0.12.0",
            "Using FLASH_ATTN attention backend out of potential backends: "
            "['FLASH_ATTN', 'FLASHINFER', 'TRITON_ATTN', 'FLEX_ATTENTION']",
        ),
        (
            "0.13.0",
            "Using FLASH_ATTN attention backend out of potential backends: "
            "('FLASH_ATTN', 'FLASHINFER', 'TRITON_ATTN', 'FLEX_ATTENTION')",
        ),
        (
            "0.28.0",
            "Using FLASH_ATTN attention backend out of potential backends: "
            "['FLASH_ATTN', 'FLASHINFER', 'TRITON_ATTN', 'FLEX_ATTENTION'].",
        ),
    ],
)
def test_the_line_that_each_release_logs(release: str, line: str) -> None:
    choice = choose(QWEN, "RTX 4090", release)
    assert (choice.name, choice.log_line, choice.error) == ("FLASH_ATTN", line, None)


def test_a_tuple_of_one_has_a_comma() -> None:
    line = choose(GPT_OSS, "L40S", "0.13.0").log_line
    assert line == "Using TRITON_ATTN attention backend out of potential backends: ('TRITON_ATTN',)"


@pytest.mark.parametrize(
    ("release", "engine", "gpu", "name"),
    [
        ("0.8.5", "V0", "RTX 4090", "XFORMERS"),
        ("0.8.5", "V1", "H100", "FLASH_ATTN"),
        ("0.11.0", "V1", "RTX 4090", "TRITON_ATTN"),
        ("0.11.0", "V1", "H100", "FLASH_ATTN"),
        ("0.11.0", "V1", "B200", "FLASHINFER"),
        ("0.11.2", "V1", "RTX 4090", "FLASHINFER"),
        ("0.16.0", "V1", "A100-80GB", "FLASHINFER"),
        ("0.16.0", "V1", "H100", "FLASH_ATTN"),
        ("0.28.0", "V1", "RTX 4090", "FLASHINFER"),
        ("0.28.0", "V1", "RTX 5090", "FLASHINFER"),
        ("0.28.0", "V1", "H100", "FLASH_ATTN"),
        ("0.28.0", "V1", "B200", "FLASHINFER"),
        ("0.33.0", "V1", "L40S", "FLASHINFER"),
    ],
)
def test_an_fp8_cache_brings_the_backend_that_can_read_it(release: str, engine: str, gpu: str, name: str) -> None:
    choice = choose(QWEN, gpu, release, kv_cache_dtype="fp8", engine=engine)
    assert (choice.name, choice.error) == (name, None)


def test_without_flashinfer_an_fp8_cache_on_ada_falls_to_triton() -> None:
    choice = choose(QWEN, "RTX 4090", "0.28.0", kv_cache_dtype="fp8", without=frozenset({"flashinfer"}))
    assert choice.name == "TRITON_ATTN"
    assert choice.rejected["FLASHINFER"] == "ImportError"
    assert "FLASH_ATTN: kv_cache_dtype not supported" in choice.how
    newer = choose(QWEN, "RTX 4090", "0.30.0", kv_cache_dtype="fp8", without=frozenset({"flashinfer"}))
    assert newer.rejected["FLASHINFER"] == "ModuleNotFoundError: No module named 'flashinfer'"


@pytest.mark.parametrize(
    ("release", "gpu", "name"),
    [
        ("0.10.1", "H100", "FLASH_ATTN"),
        ("0.10.1", "L40S", "TRITON_ATTN"),
        ("0.11.2", "B200", "FLASHINFER"),
        ("0.28.0", "A100-80GB", "TRITON_ATTN"),
        ("0.24.0", "RTX 5090", "TRITON_ATTN"),
        ("0.28.0", "RTX 5090", "FLASHINFER"),
    ],
)
def test_attention_sinks_decide_for_gpt_oss(release: str, gpu: str, name: str) -> None:
    assert choose(GPT_OSS, gpu, release).name == name


def test_images_that_see_each_other_need_triton_since_0_13() -> None:
    assert choose(GEMMA, "H100", "0.12.0").name == "FLASH_ATTN"
    assert choose(GEMMA, "H100", "0.13.0").name == "TRITON_ATTN"
    text_only = EngineArgs(limit_mm_per_prompt={"image": 0})
    assert choose(GEMMA, "H100", "0.26.0", args=text_only).name == "TRITON_ATTN"
    assert choose(GEMMA, "H100", "0.28.0", args=text_only).name == "FLASH_ATTN"


@pytest.mark.parametrize(
    ("release", "gpu", "kv", "name", "block"),
    [
        ("0.9.2", "H100", "auto", "FLASHMLA", 64),
        ("0.9.2", "A100-80GB", "auto", "TRITON_MLA", 16),
        ("0.10.2", "B200", "auto", "CUTLASS_MLA", 128),
        ("0.13.0", "H100", "auto", "FLASH_ATTN_MLA", 64),
        ("0.13.0", "H100", "fp8", "FLASHMLA", 64),
        ("0.13.0", "B200", "auto", "CUTLASS_MLA", 128),
        ("0.16.0", "B200", "auto", "FLASHINFER_MLA", 64),
        ("0.20.2", "H100", "auto", "FLASH_ATTN_MLA", 16),
        ("0.28.0", "H100", "fp8", "FLASHMLA", 64),
        ("0.28.0", "B200", "auto", "FLASHINFER_MLA", 32),
        ("0.28.0", "RTX PRO 6000", "auto", "TRITON_MLA", 16),
        ("0.28.0", "A100-80GB", "fp8", "TRITON_MLA", 16),
    ],
)
def test_latent_attention(release: str, gpu: str, kv: str, name: str, block: int) -> None:
    choice = choose(DEEPSEEK, gpu, release, kv_cache_dtype=kv)
    assert (choice.name, choice.block_size, choice.error) == (name, block, None)


def test_a_backend_asked_for_is_taken_or_refused_in_vllms_words() -> None:
    asked = EngineArgs(attention_backend="flashinfer")
    taken = choose(QWEN, "RTX 4090", "0.28.0", args=asked)
    assert (taken.name, taken.error) == ("FLASHINFER", None)
    assert taken.log_line == "Using AttentionBackendEnum.FLASHINFER backend."
    assert taken.how == "asked for with --attention-backend"
    assert choose(QWEN, "RTX 4090", "0.11.2", args=asked).how == "asked for with VLLM_ATTENTION_BACKEND"

    refused = choose(QWEN, "RTX 4090", "0.28.0", args=EngineArgs(attention_backend="FLASH_ATTN"), kv_cache_dtype="fp8")
    assert refused.error == (
        "Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. Reason: "
        "['kv_cache_dtype not supported', 'FP8 KV cache requires FA3 on SM90 or FA4 on SM100']"
    )
    assert refused.log_line == ""
    assert refused.candidates == ("FLASHINFER", "TRITON_ATTN")


def test_a_backend_that_the_release_does_not_have() -> None:
    choice = choose(QWEN, "RTX 4090", "0.28.0", args=EngineArgs(attention_backend="BANANA"))
    assert choice.error == "Unknown attention backend: 'BANANA'."
    assert choose(QWEN, "H100", "0.16.0", args=EngineArgs(attention_backend="TURBOQUANT")).error is not None


def test_when_nothing_will_do_the_error_lists_why() -> None:
    choice = choose(DEEPSEEK, "A100-80GB", "0.16.0", kv_cache_dtype="fp8")
    assert choice.error is not None
    assert choice.error.startswith(
        "No valid attention backend found for cuda with AttentionSelectorConfig(head_size=576, "
        "dtype=torch.bfloat16, kv_cache_dtype=fp8, block_size=None, use_mla=True, has_sink=False, "
        "use_sparse=False, use_mm_prefix=False, attn_type=decoder). Reasons: {FLASH_ATTN_MLA: "
        "[kv_cache_dtype not supported, compute capability not supported, "
    )
    assert choice.error.endswith("compute capability not supported]}.")
    old = choose(DEEPSEEK, "A100-80GB", "0.11.2", kv_cache_dtype="fp8").error or ""
    assert "cuda with head_size: 576, dtype: torch.bfloat16, kv_cache_dtype: fp8, block_size: None" in old


def test_fp8_that_flash_attention_or_triton_mla_will_refuse_when_built() -> None:
    assert choose(QWEN, "RTX 4090", "0.10.2", kv_cache_dtype="fp8").error == (
        "FlashAttention does not support fp8 kv-cache on this device."
    )
    assert "FP8 KV cache" in (choose(DEEPSEEK, "A100-80GB", "0.10.2", kv_cache_dtype="fp8").error or "")


def test_hybrids_of_0_10_want_flashinfer_to_be_asked_for() -> None:
    plain = choose(HYBRID, "H100", "0.10.1")
    assert "VLLM_ATTENTION_BACKEND=FLASHINFER" in (plain.error or "")
    asked = choose(HYBRID, "H100", "0.10.1", args=EngineArgs(attention_backend="FLASHINFER"))
    assert asked.error is None
    assert choose(HYBRID, "H100", "0.10.2").error is None


def test_old_cards() -> None:
    assert choose(QWEN, "T4", "0.8.5", engine="V0", dtype="float16").name == "XFORMERS"
    assert choose(QWEN, "T4", "0.10.2", dtype="float16").name == "FLEX_ATTENTION"
    assert choose(QWEN, "T4", "0.16.0", dtype="float16").name == "FLASHINFER"
    assert choose(QWEN, "T4", "0.28.0", dtype="float16").name == "TRITON_ATTN"
    assert choose(QWEN, "V100-32GB", "0.28.0", dtype="float16").name == "TRITON_ATTN"


def test_heads_of_different_size_get_one_backend_for_all() -> None:
    gemma = "google/gemma-4-31B-it"
    assert choose(gemma, "H100", "0.20.2").name == "TRITON_ATTN"
    assert choose(gemma, "RTX 5090", "0.28.0").name == "TRITON_ATTN"
    assert "only Triton takes heads of 256 and 512" in choose(gemma, "RTX 5090", "0.28.0").how


def test_a_model_without_attention_has_the_backend_of_its_states() -> None:
    config = {
        "architectures": ["MambaForCausalLM"],
        "model_type": "mamba",
        "hidden_size": 768,
        "intermediate_size": 1536,
        "state_size": 16,
        "conv_kernel": 4,
        "expand": 2,
        "num_hidden_layers": 24,
        "vocab_size": 50280,
    }
    shape = read_config(config, name="mamba-130m")
    choice = choose_backend(shape, EngineArgs(), settings("0.28.0"), find_device("H100"))
    assert (choice.name, choice.block_size, choice.log_line) == ("MAMBA1_ATTN", 16, "")


def test_another_platform_is_an_estimate() -> None:
    choice = choose(QWEN, "MI300X", "0.28.0")
    assert (choice.name, choice.basis) == ("ROCM_ATTN", "estimated")
    assert choose(GPT_OSS, "MI300X", "0.28.0").name == "TRITON_ATTN"


def test_a_card_of_unknown_capability_is_an_estimate() -> None:
    device = custom_device("X9000", 24 * GIB, None)
    choice = choose_backend(model(QWEN), EngineArgs(), settings("0.28.0"), device)
    assert (choice.name, choice.basis) == ("FLASH_ATTN", "estimated")


def test_the_users_block_size_is_kept_and_may_cost_the_best_backend() -> None:
    assert choose(QWEN, "H100", "0.28.0", args=EngineArgs(block_size=64)).block_size == 64
    odd = choose(QWEN, "H100", "0.28.0", args=EngineArgs(block_size=8))
    assert odd.error is not None
    assert "block_size not supported" in odd.rejected["FLASH_ATTN"]


@given(
    st.sampled_from(RELEASES),
    st.sampled_from(["RTX 4090", "H100", "B200", "RTX 5090", "A100-40GB", "MI300X", "GB10"]),
    st.sampled_from([QWEN, HYBRID, DEEPSEEK, GPT_OSS, GEMMA]),
    st.sampled_from(["auto", "fp8"]),
    st.sampled_from([None, "FLASHINFER", "TRITON_ATTN", "FLASH_ATTN"]),
)
def test_every_launch_gets_a_backend_or_a_reason(release: str, gpu: str, name: str, kv: str, asked: str | None) -> None:
    args = EngineArgs(attention_backend=asked)
    choice = choose_backend(model(name), args, settings(release, kv_cache_dtype=kv), find_device(gpu))
    assert choice.name
    assert choice.how or choice.error
    assert choice.block_size >= 16
    assert choice.kernel_alignment >= 16
    assert choice.workspace_bytes >= 0
    assert choice.outside_bytes >= 0
    assert bool(choice.workspace_bytes) == bool(choice.workspace_in)
    if choice.error is None and asked:
        assert choice.name == asked
    if choice.error is None and not asked and choice.candidates:
        assert choice.name in choice.candidates or choice.others or "MLA" in choice.name


def test_questions_do_not_depend_on_the_total_of_the_card() -> None:
    device = find_device("RTX 4090")
    small = replace(device, total_bytes=GIB)
    assert choose_backend(model(QWEN), EngineArgs(), settings("0.28.0"), small) == choose_backend(
        model(QWEN), EngineArgs(), settings("0.28.0"), device
    )
