"""The sentence, the moved entry and the exit code of small logs in the wording of real releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvroom.compare.comparison import Comparison
from kvroom.compare.inputs import compared
from kvroom.units import GIB

LOGS = Path(__file__).parent / "logs"


def of(good: str, bad: str, **options: str) -> Comparison:
    return compared([str(LOGS / f"{good}.log"), str(LOGS / f"{bad}.log")], offline=True, **options)


def differing(comparison: Comparison) -> list[str]:
    return [row.name for row in comparison.settings if row.differs]


def test_the_backend_and_what_it_costs() -> None:
    seen = of("backend-flash-attn", "backend-flashinfer", gpu="RTX 4090")
    assert differing(seen) == ["attention_backend"]
    assert seen.moved is not None
    assert (seen.moved.entry, seen.moved.setting) == ("cuda_graphs", "attention_backend")
    assert seen.moved.difference == pytest.approx(0.32 * GIB, abs=0.01 * GIB)
    assert seen.moved.predicted == pytest.approx(0.385 * GIB, abs=0.01 * GIB)
    assert seen.sentence.startswith(
        "Only the attention backend differs (FLASH_ATTN -> FLASHINFER), and it costs 0.32 GiB"
    )


def test_the_other_way_round_it_gives_as_much() -> None:
    seen = of("backend-flashinfer", "backend-flash-attn", gpu="RTX 4090")
    assert "(FLASHINFER -> FLASH_ATTN), and it gives 0.32 GiB" in seen.sentence


def test_an_upgrade_moves_defaults() -> None:
    seen = of("upgrade-0.19", "upgrade-0.20", gpu="RTX 4090")
    assert differing(seen) == ["version", "gpu_memory_utilization", "graph_estimate"]
    rows = {row.name: row for row in seen.settings}
    share = rows["gpu_memory_utilization"]
    assert share.good is not None
    assert share.bad is not None
    assert (share.good.value, share.good.default) == (0.9, True)
    assert (share.bad.value, share.bad.default) == (0.92, True)
    assert seen.moved is not None
    assert (seen.moved.entry, seen.moved.setting) == ("cuda_graphs", "version")
    assert "Only vLLM's version differs (0.19.1 -> 0.20.0), and it costs 0.15 GiB" in seen.sentence
    assert "requested +0.48 GiB, cuda_graphs -0.62 GiB" in seen.sentence


def test_an_fp8_cache_halves_the_token() -> None:
    seen = of("kv-auto", "kv-fp8")
    assert seen.moved is not None
    assert (seen.moved.entry, seen.moved.setting) == ("bytes_per_token", "kv_cache_dtype")
    assert "72.0 KiB instead of 144.1 KiB" in seen.sentence
    assert "With it came the attention backend (FLASH_ATTN -> FLASHINFER)" in seen.sentence


def test_more_sequences_until_nothing_is_left() -> None:
    seen = of("seqs-256", "seqs-1024")
    assert seen.moved is not None
    assert (seen.moved.entry, seen.moved.setting) == ("rest", "max_num_seqs")
    assert seen.sentence.startswith("Only --max-num-seqs differs (256 -> 1024), and it costs 4.10 GiB")
    assert seen.sentence.endswith("The second start fails at stage kv_sizing.")
    assert (seen.bad.stage, seen.good.error) == ("kv_sizing", None)
    assert seen.bad.error is not None
    assert "larger than the available KV cache memory" in seen.bad.error
    assert "The card is taken to be that of the other log, NVIDIA GeForce RTX 4090." in seen.bad.notes


def test_another_process_holds_memory() -> None:
    seen = of("seqs-256", "busy")
    assert seen.moved is not None
    assert seen.moved.entry == "free_bytes"
    assert "5.36 GiB less was free" in seen.sentence
    assert "another process holds memory on the card" in seen.sentence


def test_memory_that_no_setting_took() -> None:
    seen = of("seqs-256", "leak")
    assert seen.moved is not None
    assert (seen.moved.entry, seen.moved.setting) == ("other", None)
    assert "another process took memory while vLLM measured" in seen.sentence


def test_run_to_run_noise_is_the_same() -> None:
    seen = of("seqs-256", "again")
    assert seen.same
    assert seen.moved is None
    assert seen.sentence == "No setting differs, and no figure moved by more than run-to-run noise (0.10 GiB)."


def test_without_a_model_that_is_known_several_may_be_the_cause(tmp_path: Path) -> None:
    text = (LOGS / "seqs-256.log").read_text("utf-8").replace("Qwen/Qwen3-8B", "/srv/house-model")
    other = text.replace("'max_model_len': 16384", "'max_model_len': 16384, 'max_num_seqs': 512, 'enable_lora': True")
    other = other.replace("1.41 GiB for peak", "3.10 GiB for peak").replace("memory: 4.56 GiB", "memory: 2.87 GiB")
    (tmp_path / "good.log").write_text(text, "utf-8")
    (tmp_path / "bad.log").write_text(other, "utf-8")
    seen = compared([str(tmp_path / "good.log"), str(tmp_path / "bad.log")], offline=True)
    assert seen.good.prediction is None
    assert seen.moved is not None
    assert (seen.moved.entry, seen.moved.setting) == ("activation", None)
    assert (
        "Of what both show only --enable-lora differs (off -> on), and the activation peak is 3.10 GiB" in seen.sentence
    )
    assert seen.sentence.endswith("--max-num-seqs (512) is shown by one side only.")
    rows = {row.name: row for row in seen.settings}
    assert rows["max_num_seqs"].good is None, "what the release fills in by card is unknown without one"


def test_two_settings_without_a_prediction(tmp_path: Path) -> None:
    text = (LOGS / "seqs-256.log").read_text("utf-8").replace("Qwen/Qwen3-8B", "/srv/house-model")
    other = text.replace("'max_model_len': 16384", "'max_model_len': 16384, 'cpu_offload_gb': 2, 'enable_lora': True")
    other = other.replace("1.41 GiB for peak", "3.10 GiB for peak").replace("memory: 4.56 GiB", "memory: 2.87 GiB")
    (tmp_path / "good.log").write_text(text, "utf-8")
    (tmp_path / "bad.log").write_text(other, "utf-8")
    seen = compared([str(tmp_path / "good.log"), str(tmp_path / "bad.log")], offline=True)
    assert "More than one of them may be the cause." in seen.sentence


def test_of_several_settings_the_one_that_accounts_is_named(tmp_path: Path) -> None:
    text = (LOGS / "seqs-1024.log").read_text("utf-8")
    text = text.replace("'max_num_seqs': 1024", "'max_num_seqs': 1024, 'enable_prefix_caching': False")
    (tmp_path / "bad.log").write_text(text, "utf-8")
    seen = compared([str(LOGS / "seqs-256.log"), str(tmp_path / "bad.log")], offline=True)
    assert seen.sentence.startswith("2 settings differ; --max-num-seqs (256 -> 1024) accounts for the change")


def test_what_one_log_does_not_show_is_unknown(tmp_path: Path) -> None:
    lines = (LOGS / "seqs-256.log").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "short.log").write_text("".join(line for line in lines if "non-default args" not in line), "utf-8")
    seen = compared([str(LOGS / "seqs-1024.log"), str(tmp_path / "short.log")], offline=True)
    rows = {row.name: row for row in seen.settings}
    assert rows["max_num_seqs"].bad is None
    assert not rows["max_num_seqs"].differs
    assert "Not all arguments are shown" in seen.sentence


def test_one_file_with_both_runs(tmp_path: Path) -> None:
    both = tmp_path / "both.log"
    both.write_text("".join((LOGS / f"{name}.log").read_text("utf-8") for name in ("kv-auto", "kv-fp8")), "utf-8")
    seen = compared([str(both)], offline=True)
    assert seen.good.label.endswith("from line 1")
    assert seen.moved is not None
    assert seen.moved.setting == "kv_cache_dtype"


def test_an_excerpt_of_two_runs_without_banners(tmp_path: Path) -> None:
    both = tmp_path / "excerpt.log"
    both.write_text(
        "with a length of 100000\n"
        "Available KV cache memory: 10.55 GiB\n"
        "GPU KV cache size: 230,528 tokens\n"
        "Maximum concurrency for 100,000 tokens per request: 2.31x\n"
        "and with 221000\n"
        "ValueError: To serve at least one request with the models's max seq len (221000), (10.12 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (5.59 GiB).\n",
        "utf-8",
    )
    seen = compared([str(both)], offline=True)
    assert "only --max-model-len differs (100,000 -> 221,000)" in seen.sentence
    assert seen.moved is not None
    assert seen.moved.difference == pytest.approx(-4.96 * GIB, abs=0.01 * GIB)


COMMAND = "vllm serve Qwen/Qwen3-8B --max-model-len 16384"


def test_a_command_is_predicted_from_the_log_beside_it() -> None:
    words = f"{COMMAND} --max-num-seqs 512".split()
    seen = compared([str(LOGS / "seqs-256.log"), *words], offline=True)
    assert seen.bad.kind == "command"
    assert differing(seen) == ["max_num_seqs"]
    assert seen.moved is not None
    assert (seen.moved.entry, seen.moved.setting) == ("activation", "max_num_seqs")
    assert "(256 -> 512), and it costs 1.38 GiB" in seen.sentence


def test_the_same_command_is_the_same() -> None:
    assert compared([str(LOGS / "seqs-256.log"), COMMAND], offline=True).same
    assert compared([COMMAND, str(LOGS / "seqs-256.log")], offline=True).same


def test_two_commands() -> None:
    seen = compared([COMMAND, f"{COMMAND} --kv-cache-dtype fp8"], gpu="RTX 4090", offline=True)
    assert seen.moved is not None
    assert seen.moved.setting == "kv_cache_dtype"
