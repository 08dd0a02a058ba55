from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.errors import UsageError
from kvroom.models.config import read_config
from kvroom.models.quantization import assume_quantization
from kvroom.models.weights.storage import block_bytes
from kvroom.units import GIB, MIB
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.releases import Release
from kvroom.vllm.rules import rules_for
from kvroom.vllm.weights.loaded import loaded_weights

from .conftest import Load, catalogue_shape, gpu

LLAMA, QWEN = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B"
MOE, DEEPSEEK, OSS = "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b"


def gib(n: int) -> float:
    return n / GIB


def part(weights: Any, name: str) -> int:
    return dict(weights.parts).get(name, 0)


def test_plain_weights_are_the_figure_vllm_prints(load: Load) -> None:
    weights = load(LLAMA, release="0.11.0")
    assert gib(weights.expected) == pytest.approx(14.9889, abs=0.0005)
    assert weights.basis == "computed"
    assert weights.high - weights.low < 0.02 * weights.expected


def test_parts_add_up_and_explain(load: Load) -> None:
    for name in (LLAMA, MOE, DEEPSEEK, "google/gemma-3-27b-it", "nvidia/NVIDIA-Nemotron-Nano-9B-v2"):
        weights = load(name)
        assert sum(size for _, size in weights.parts) == weights.expected
        assert "billion parameters" in weights.why


def test_tensor_parallel_replicates_key_heads_past_their_number(load: Load) -> None:
    half, sixteenth = load(QWEN, tensor_parallel_size=2), load(QWEN, tensor_parallel_size=16)
    attention = [part(w, "attention") for w in (load(QWEN), half, sixteenth)]
    assert attention[0] / attention[1] == pytest.approx(2, abs=0.01)
    assert attention[0] / attention[2] < 15  # 8 key heads on 16 ranks


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from([LLAMA, QWEN, MOE, DEEPSEEK, OSS, "Qwen/Qwen3.5-27B", "google/gemma-3-27b-it"]),
    power=st.integers(0, 3),
    expert=st.booleans(),
)
def test_more_ranks_never_hold_more(name: str, power: int, expert: bool) -> None:
    rules = rules_for(Release(0, 32, 0))
    sizes = [
        loaded_weights(
            catalogue_shape(name),
            EngineArgs(tensor_parallel_size=tp, enable_expert_parallel=expert),
            rules,
            gpu(),
        ).expected
        for tp in (1 << power, 2 << power)
    ]
    assert sizes[1] <= sizes[0]


def test_stages_of_a_pipeline_share_the_layers_and_hold_the_ends(load: Load) -> None:
    whole = load(QWEN)
    first, last = (load(QWEN, pipeline_parallel_size=2, stage=i) for i in (0, 1))
    assert part(first, "lm_head") == 0
    assert part(last, "embedding") == 0
    assert part(first, "mlp") + part(last, "mlp") == part(whole, "mlp")
    twice = part(whole, "buffers")
    assert abs(first.expected + last.expected - whole.expected - twice) < MIB


def test_a_pipeline_partition_is_followed(load: Load) -> None:
    given_layers = {"VLLM_PP_LAYER_PARTITION": "30,6"}
    first, last = (load(QWEN, pipeline_parallel_size=2, stage=i, env=given_layers) for i in (0, 1))
    assert part(first, "mlp") == 5 * part(last, "mlp")
    with pytest.raises(UsageError):
        load(QWEN, pipeline_parallel_size=2, env={"VLLM_PP_LAYER_PARTITION": "30,7"})


def test_a_tied_head_is_copied_to_the_last_stage_only(load: Load) -> None:
    name = "Qwen/Qwen3-0.6B"
    assert part(load(name), "lm_head") == 0
    assert part(load(name, pipeline_parallel_size=2, stage=0), "lm_head") == 0
    assert part(load(name, pipeline_parallel_size=2, stage=1), "lm_head") == pytest.approx(151_936 * 1024 * 2, rel=0.01)


def test_expert_parallel_spreads_experts_over_data_parallel_ranks_too(load: Load) -> None:
    alone = part(load(MOE), "experts")
    spread = load(MOE, tensor_parallel_size=2, data_parallel_size=4, enable_expert_parallel=True)
    assert part(spread, "experts") == pytest.approx(alone / 8, rel=0.001)
    # attention is shared by tensor-parallel ranks only
    assert part(spread, "attention") == pytest.approx(part(load(MOE), "attention") / 2, rel=0.01)


def test_without_expert_parallel_the_width_is_divided_by_data_parallel_ranks_too(load: Load) -> None:
    assert part(load(MOE, data_parallel_size=4), "experts") == pytest.approx(part(load(MOE), "experts") / 4, rel=0.01)


def test_uneven_experts_are_counted_on_the_fullest_rank(load: Load) -> None:
    third = part(load(MOE, tensor_parallel_size=3, enable_expert_parallel=True), "experts")
    assert third == pytest.approx(part(load(MOE), "experts") * 43 / 128, rel=0.004)


def test_latent_attention_keeps_copies_of_dequantised_weights_only(load: Load) -> None:
    # 61 layers x 16 heads x (128 + 128) x 512 x 2 bytes
    fp8 = load(DEEPSEEK, tensor_parallel_size=8)
    assert part(fp8, "absorbed MLA copies") == 255_852_544
    assert part(load("deepseek-ai/DeepSeek-V2-Lite"), "absorbed MLA copies") == 0


def test_gpt_oss_is_padded_by_the_kernel_that_the_card_gets(load: Load) -> None:
    ampere = load(OSS, device=gpu((8, 0)))
    hopper, hopper_pip = load(OSS), load(OSS, release="0.11.0")
    assert gib(ampere.expected) == pytest.approx(65.97, abs=0.02)  # Marlin
    assert gib(hopper_pip.expected) == pytest.approx(65.97, abs=0.02)
    assert gib(hopper.expected) == pytest.approx(64.39, abs=0.05)  # Triton
    for weights in (hopper, hopper_pip):  # either kernel may run there
        assert gib(weights.low) < 64.4
        assert gib(weights.high) > 65.9
    assert ampere.high - ampere.low < 0.02 * ampere.expected


def test_drafts_load_only_when_they_speculate(load: Load) -> None:
    plain = load("Qwen/Qwen3.5-27B", language_model_only=True)
    mtp = load(
        "Qwen/Qwen3.5-27B",
        language_model_only=True,
        speculative_config={"method": "mtp", "num_speculative_tokens": 2},
    )
    assert part(plain, "draft") == 0
    assert 0.005 < part(mtp, "draft") / plain.expected < 0.03
    ngram = load("Qwen/Qwen3.5-27B", language_model_only=True, speculative_config={"method": "ngram"})
    assert ngram.expected == plain.expected


def test_a_separate_draft_is_added_and_an_eagle_head_shares_the_embedding(load: Load) -> None:
    draft = catalogue_shape("Qwen/Qwen3-0.6B")
    whole = load(QWEN, draft=draft, speculative_config={"model": "x", "method": "draft_model"})
    eagle = load(QWEN, draft=draft, speculative_config={"model": "x", "method": "eagle3"})
    alone = load("Qwen/Qwen3-0.6B").expected
    assert whole.expected - load(QWEN).expected == pytest.approx(alone, rel=0.01)
    assert part(whole, "draft") - part(eagle, "draft") == pytest.approx(151_936 * 1024 * 2, rel=0.01)


def test_lora_slots_grow_with_rank_and_number(load: Load) -> None:
    one = part(load(LLAMA, enable_lora=True, max_lora_rank=16), "lora")
    # per layer and rank: inputs of qkv (3), o, gate and up (2), down, and their outputs
    rank = 32 * (3 * 4096 + 6144 + 4096 + 4096 + 2 * 4096 + 28672 + 14336 + 4096) + 4096 + 128_256
    assert one == pytest.approx(16 * rank * 2, rel=0.02)
    assert part(load(LLAMA, enable_lora=True, max_lora_rank=64, max_loras=4), "lora") == pytest.approx(
        16 * one, rel=0.02
    )
    assert part(load(LLAMA), "lora") == 0


def test_old_releases_add_rows_for_lora_tokens(load: Load) -> None:
    old = load(LLAMA, release="0.10.0", enable_lora=True)
    new = load(LLAMA, release="0.20.0", enable_lora=True)
    assert part(old, "embedding") - part(new, "embedding") == 256 * 4096 * 2


def test_cpu_offload_takes_weights_off_the_gpu(load: Load) -> None:
    plain, some, all_ = (load(LLAMA, cpu_offload_gb=n) for n in (0.0, 4.0, 999.0))
    assert plain.expected - some.expected == 4 * GIB
    assert all_.expected == part(plain, "buffers")
    assert "host's memory" in some.notes[0]
    assert sum(size for _, size in some.parts) == some.expected


def test_online_fp8_halves_the_linear_layers(load: Load) -> None:
    weights = load(LLAMA, quantization="fp8")
    assert gib(weights.expected) == pytest.approx(8.489, abs=0.005)  # 9,081,201,152 bytes and the rotary table


def test_float32_doubles_and_checkpoints_in_float32_are_cast(load: Load) -> None:
    shape = catalogue_shape("Qwen/Qwen3-0.6B")
    single = replace(shape, dtype="float32")
    assert load(single).expected == load(shape).expected
    assert load(shape, dtype="float32").expected == pytest.approx(2 * load(shape).expected, rel=0.01)


def test_embedding_models_have_no_head(load: Load) -> None:
    generate, pooling = load("Qwen/Qwen3-8B"), load("Qwen/Qwen3-8B", runner="pooling")
    assert generate.expected - pooling.expected == pytest.approx(151_936 * 4096 * 2, rel=0.01)


def test_the_tower_stays_away_with_the_language_model_only(load: Load) -> None:
    name = "google/gemma-3-27b-it"
    whole = load(name)
    assert whole.expected - load(name, language_model_only=True).expected == part(whole, "vision and audio")


def test_the_tower_stays_away_where_no_item_is_allowed(load: Load) -> None:
    name = "Qwen/Qwen2.5-VL-7B-Instruct"
    whole = load(name)
    no_items = load(name, limit_mm_per_prompt={"image": 0, "video": {"count": 0}})
    assert whole.expected - no_items.expected == part(whole, "vision and audio")
    assert load(name, limit_mm_per_prompt={"image": 0}).expected == whole.expected


def test_the_tower_may_be_whole_on_each_rank(load: Load) -> None:
    name = "Qwen/Qwen2.5-VL-7B-Instruct"
    cut = load(name, tensor_parallel_size=2)
    whole = load(name, tensor_parallel_size=2, given={"mm_encoder_tp_mode": "data"})
    assert part(whole, "vision and audio") == part(load(name), "vision and audio")
    assert part(cut, "vision and audio") < 0.6 * part(whole, "vision and audio")


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("awq", 5.28, 5.45),
        ("gptq", 5.25, 5.42),
        ("w4a16", 5.25, 5.42),
        ("fp8", 8.40, 8.55),
        ("fp8-block", 8.40, 8.55),
        ("w8a8", 8.40, 8.55),
        ("nvfp4", 5.55, 5.75),
        ("bitsandbytes", 5.55, 5.75),
        ("gguf:Q4_K_M", 4.5, 4.7),
        ("gguf:Q8_0", 7.9, 8.1),
    ],
)
def test_an_assumed_quantisation_is_priced(load: Load, name: str, low: float, high: float) -> None:
    shape = replace(catalogue_shape(LLAMA), quantization=assume_quantization(name))
    weights = load(shape)
    assert low < gib(weights.expected) < high
    assert weights.high - weights.low > 0.01 * weights.expected


def test_an_assumed_quantisation_leaves_the_layers_that_speculate_plain(load: Load) -> None:
    name, spec = "Qwen/Qwen3.6-27B", {"method": "mtp", "num_speculative_tokens": 2}
    assumed = load(replace(catalogue_shape(name), quantization=assume_quantization("w4a16")), speculative_config=spec)
    plain = load(name, speculative_config=spec)
    assert part(assumed, "draft") == part(plain, "draft") > 0
    assert assumed.expected < 0.5 * plain.expected


def test_older_cards_run_fp8_through_marlin_with_wider_scales(load: Load) -> None:
    name = "Qwen/Qwen3-8B-FP8"
    ampere, hopper = load(name, device=gpu((8, 6))), load(name)
    assert 0.01 < ampere.expected / hopper.expected - 1 < 0.02


def test_an_unknown_architecture_is_wide_and_its_headers_decide(load: Load) -> None:
    config = {
        "architectures": ["NewThing"], "model_type": "newthing", "hidden_size": 1024, "num_hidden_layers": 8,
        "num_attention_heads": 8, "vocab_size": 32_000, "intermediate_size": 4096,
    }  # fmt: skip
    guessed = load(read_config(config, name="x"))
    assert guessed.basis == "estimated"
    assert guessed.high / guessed.expected == pytest.approx(1.25, abs=0.01)
    known = load(read_config(config, name="x", checkpoint_bytes=GIB))
    assert known.basis == "published"
    assert known.expected == pytest.approx(GIB, rel=0.001)
    assert sum(size for _, size in known.parts) == known.expected


def test_a_repeated_question_is_not_worked_out_again() -> None:
    shape, args, device = catalogue_shape(DEEPSEEK), EngineArgs(tensor_parallel_size=8), gpu()
    rules = rules_for(Release(0, 32, 0))

    assert loaded_weights(shape, args, rules, device) is loaded_weights(shape, args, rules, device)


@given(size=st.integers(1, 4 * GIB))
def test_the_allocator_never_counts_less_and_wastes_at_most_a_mebibyte(size: int) -> None:
    assert size <= block_bytes(size) <= size + MIB + 512
