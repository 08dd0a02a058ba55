"""The encoder's part of the profile run, beside what the releases' own code allocates for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvroom.ledger.encoder import items_profiled, largest_item
from kvroom.ledger.entries import Entry
from kvroom.ledger.predict import Prediction
from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request
from kvroom.units import GIB

TRACED = json.loads((Path(__file__).parents[1] / "data" / "ledger" / "encoders.json").read_text("utf-8"))["rows"]


def predicted(model: str, *words: str, gpu: str = "1x H100 80GB", release: str = "0.25.1") -> Prediction:
    found = plan_tokens([model, *words], {}, Request(gpu=gpu, vllm=release, offline=True)).prediction
    assert found.settings is not None
    return found


def activation(*args: Any, **more: Any) -> Entry:
    ledger = predicted(*args, **more).ledger
    assert ledger is not None
    return ledger.activation


@pytest.mark.parametrize("row", TRACED, ids=lambda row: f"{row['model'].rpartition('/')[2]} {row['release']}")
def test_the_peak_is_what_the_releases_own_code_allocates(row: dict[str, Any]) -> None:
    entry = activation(row["model"], *row["flags"], gpu=row["gpu"], release=row["release"])
    assert entry.expected == pytest.approx(row["activation"], rel=0.05)


@pytest.mark.parametrize(
    ("model", "release", "words", "kind", "counted", "items"),
    [
        # lines "Encoder cache will be initialized with a budget of N tokens, and profiled with M items" of public logs
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "0.12.0", ["--max-num-batched-tokens", "8192"], "video", 153600, 1),
        ("Qwen/Qwen3.6-35B-A3B", "0.25.1", ["--max-num-batched-tokens", "2048"], "image", 16384, 1),
        ("Qwen/Qwen3.6-35B-A3B", "0.20.0", ["--max-num-batched-tokens", "65536"], "image", 16384, 4),
        ("google/gemma-3-27b-it", "0.13.0", ["--max-num-batched-tokens", "2048"], "image", 260, 7),
        ("google/gemma-4-26B-A4B", "0.20.0", ["--max-num-batched-tokens", "4096"], "video", 2496, 1),
        ("google/gemma-4-26B-A4B", "0.20.0", ["--max-num-batched-tokens", "32768"], "video", 2496, 13),
        ("llava-hf/llava-1.5-7b-hf", "0.10.2", ["--max-num-batched-tokens", "2048"], "image", 576, 3),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "0.21.0", ["--max-model-len", "32768"], "video", 32768, 1),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "0.8.5", ["--max-model-len", "32768"], "image", 16384, 1),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "0.25.1", ["--limit-mm-per-prompt", '{"video": 0}'], "image", 16384, 1),
    ],
)
def test_the_items_are_those_that_vllm_profiles(
    model: str, release: str, words: list[str], kind: str, counted: int, items: int
) -> None:
    found = predicted(model, *words, release=release, gpu="2x H100 80GB")
    shape, settings = found.setup.shape, found.settings
    assert shape.vision is not None
    assert settings is not None
    item = largest_item(shape.vision, found.setup.args, settings)
    assert (item.kind, item.counted, items_profiled(item, settings)) == (kind, counted, items)


def test_padded_outputs_stay_alive_in_the_releases_that_pad_them() -> None:
    words = ("--max-num-seqs", "64", "--max-model-len", "65536", "-tp", "2")
    padded, bare = (
        activation("Qwen/Qwen3-VL-30B-A3B-Instruct", *words, gpu="2x H100 80GB", release=release)
        for release in ("0.12.0", "0.13.0")
    )
    assert padded.expected - bare.expected > 1.5 * GIB


def test_an_encoder_without_items_takes_nothing() -> None:
    model = "Qwen/Qwen3.6-35B-A3B"
    none = activation(model, "--max-num-seqs", "8", "--limit-mm-per-prompt", '{"image": 0, "video": 0}')
    assert activation(model, "--max-num-seqs", "8").expected > none.expected + 0.9 * GIB
    assert none.cause == "forward"


def test_the_phase_is_said_with_its_items() -> None:
    assert "1 image item of 16,384 tokens" in activation("Qwen/Qwen3.6-27B", "--max-num-seqs", "8").why
