import pytest
from tests.vllm.backends.launch import choose

from kvroom.units import MIB
from kvroom.vllm.args import EngineArgs

QWEN, HYBRID = "Qwen/Qwen3-8B", "Qwen/Qwen3.6-27B"
FLASHINFER = EngineArgs(attention_backend="FLASHINFER", tensor_parallel_size=2)


def test_a_hybrid_on_two_cards_of_16_gb_pays_for_flashinfer_in_0_28() -> None:
    """145 blocks of 24.5 MiB with FLASH_ATTN, 131 with FLASHINFER: 0.32 to 0.4 GiB were logged as lost."""
    flash = choose(HYBRID, "5060 Ti 16GB", "0.28.0", args=EngineArgs(tensor_parallel_size=2))
    assert (flash.name, flash.workspace_bytes, flash.outside_bytes) == ("FLASH_ATTN", 0, 0)
    flashinfer = choose(HYBRID, "5060 Ti 16GB", "0.28.0", args=FLASHINFER)
    assert flashinfer.workspace_bytes == 394 * MIB
    assert flashinfer.workspace_in == "graphs"
    assert "profile_cudagraph_memory" in flashinfer.workspace_why


@pytest.mark.parametrize(
    ("release", "inside", "outside"),
    [
        ("0.9.2", 0, 256),
        ("0.11.0", 0, 256),
        ("0.11.2", 0, 394),
        ("0.17.1", 0, 394),
        ("0.19.1", 0, 394),
        ("0.20.2", 394, 0),
        ("0.28.0", 394, 0),
        ("0.33.0", 394, 0),
    ],
)
def test_the_workspace_moves_into_the_budget_in_0_20(release: str, inside: int, outside: int) -> None:
    choice = choose(QWEN, "RTX 4090", release, args=FLASHINFER)
    assert (choice.workspace_bytes, choice.outside_bytes) == (inside * MIB, outside * MIB)


@pytest.mark.parametrize(
    "changes",
    [
        {"cudagraph_mode": "PIECEWISE"},
        {"cudagraph_mode": "NONE", "capture_sizes": ()},
        {"model_runner": "V2"},
    ],
)
def test_without_a_full_graph_to_estimate_it_stays_outside(changes: dict[str, object]) -> None:
    choice = choose(QWEN, "RTX 4090", "0.28.0", args=FLASHINFER, **changes)
    assert (choice.workspace_bytes, choice.outside_bytes) == (0, 394 * MIB)


def test_runner_v2_counts_it_from_0_29_and_shares_it() -> None:
    sinks = EngineArgs(attention_backend="FLASHINFER")
    v1 = choose("openai/gpt-oss-120b", "RTX 5090", "0.29.0", args=sinks, max_num_batched_tokens=64)
    v2 = choose("openai/gpt-oss-120b", "RTX 5090", "0.29.0", args=sinks, max_num_batched_tokens=64, model_runner="V2")
    assert v1.workspace_bytes == 2 * 394 * MIB  # one for the full, one for the sliding layers
    assert v2.workspace_bytes == 394 * MIB


def test_wide_batches_need_more_since_0_26() -> None:
    one = EngineArgs(attention_backend="FLASHINFER")
    wide = choose(QWEN, "RTX 4090", "0.26.0", args=one, max_num_batched_tokens=8192)
    assert wide.workspace_bytes == 8192 * 32 * 128 * 16
    assert choose(QWEN, "RTX 4090", "0.25.1", args=one, max_num_batched_tokens=8192).workspace_bytes == 394 * MIB


def test_the_environment_is_read() -> None:
    def env(**values: str) -> EngineArgs:
        return EngineArgs(attention_backend="FLASHINFER", env=values)

    small = env(VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE=str(128 * MIB))
    assert choose(QWEN, "RTX 4090", "0.24.0", args=small).workspace_bytes == 128 * MIB
    assert choose(QWEN, "RTX 4090", "0.9.2", args=small).outside_bytes == 256 * MIB
    off = env(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS="0")
    assert choose(QWEN, "RTX 4090", "0.28.0", args=off).outside_bytes == 394 * MIB
    on = env(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS="1")
    assert choose(QWEN, "RTX 4090", "0.19.1", args=on).workspace_bytes == 394 * MIB


def test_modules_that_allocate_on_import_count_even_when_rejected() -> None:
    """Latent attention on Hopper imports FlashInfer's module to reject it: 128 MiB, to 0.24."""
    assert choose("deepseek-ai/DeepSeek-V3", "H100", "0.16.0").workspace_bytes == 128 * MIB
    assert choose("deepseek-ai/DeepSeek-V3", "H100", "0.16.0").workspace_in == "load"
    assert choose("deepseek-ai/DeepSeek-V3", "H100", "0.28.0").workspace_bytes == 0
    without = frozenset({"flashinfer"})
    assert choose("deepseek-ai/DeepSeek-V3", "H100", "0.16.0", without=without).workspace_bytes == 0
