"""What a measurement makes of the next launch on its machine."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learned.makers import LLAMA, available, measured, plain, prediction

from kvroom.learned.apply import with_learned
from kvroom.learned.measurement import Measurement
from kvroom.ledger.predict import Prediction, predict
from kvroom.units import GIB


@cache
def start() -> Prediction:
    """A launch."""
    return prediction()


@cache
def kept_of_it() -> Measurement:
    """What its log taught."""
    return measured(start(), weights=14.99, available=3.31, total=23.64, other=0.07)


def test_the_same_launch_has_the_very_figures_of_the_log() -> None:
    setup, notes = with_learned(start().setup, [kept_of_it()])
    ledger = predict(setup).ledger
    assert ledger is not None
    assert ledger.available.expected == int(3.31 * GIB)
    assert ledger.available.spread_down == ledger.available.spread_up == int(0.04 * GIB)  # starts differ by so much
    assert {entry.basis for entry in (ledger.weights, ledger.available, ledger.requested)} == {"measured"}
    assert notes == (
        f"From a log of such a machine, release and model (learned 2026-01-02, {kept_of_it().id}; "
        "--no-learned plans without): weights, other, available, with these settings.",
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--max-model-len", "1024"),
        ("--gpu-memory-utilization", "0.8"),
        ("--max-num-seqs", "16"),
        ("--gpu-memory-utilization", "0.97", "--max-num-batched-tokens", "8192"),
    ],
)
def test_another_length_share_or_concurrency_moves_it_as_the_rules_do(words: tuple[str, ...]) -> None:
    now = prediction(LLAMA, *words)
    setup, notes = with_learned(now.setup, [kept_of_it()])
    base = replace(setup, measured={}, logged_args=None)
    before = replace(base, args=start().setup.args)
    assert available(setup) - int(3.31 * GIB) == available(base) - available(before)
    assert all(word in notes[0] for word in words if word.startswith("--"))
    ledger = predict(setup).ledger
    assert ledger is not None
    assert ledger.weights.basis == "measured"
    assert (ledger.available.basis == "estimated") == any(word.startswith("--max-num") for word in words)


def test_what_only_a_share_of_a_catalogue_total_moves_rests_on_that_total() -> None:
    now = prediction(LLAMA, "--gpu-memory-utilization", "0.8")
    setup, _ = with_learned(now.setup, [measured(start(), available=3)])
    ledger = predict(setup).ledger
    assert ledger is not None
    assert ledger.available.basis == "published"


def test_memory_that_the_cpu_shares_moves_between_starts() -> None:
    now = prediction(gpu="GB10", vllm="0.20.0")
    ledger = predict(with_learned(now.setup, [measured(now, available=40.61)])[0]).ledger
    assert ledger is not None
    assert ledger.available.high > 44.03 * GIB  # what the next start on that machine logged


def test_a_public_pair_of_logs() -> None:
    """Two starts of vllm-project/recipes#12 on 8 x H20, alike but for 0.05 of utilisation: 48.66 and 55.65 GiB."""
    words = ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "-dp=8", "--enable-expert-parallel")
    first = prediction(*words, gpu="8x H20-3e", vllm="0.10.1")
    second = prediction(*words, "--gpu-memory-utilization", "0.95", gpu="8x H20-3e", vllm="0.10.1")
    setup, _ = with_learned(second.setup, [measured(first, available=48.66)])
    assert abs(available(second.setup) / GIB - 55.65) > 0.2
    assert abs(available(setup) / GIB - 55.65) < 0.1


def test_another_model_gets_what_does_not_depend_on_it() -> None:
    now = prediction("Qwen/Qwen3-4B")
    setup, notes = with_learned(now.setup, [kept_of_it()])
    assert dict(setup.measured) == {"other": int(0.07 * GIB)}
    assert setup.machine.device.total_bytes == int(23.64 * GIB)
    assert "the card's total (23.64 GiB) and what is no tensor (other)" in notes[0]
    assert LLAMA in notes[0]
    without, notes = with_learned(now.setup, [measured(start(), weights=14.99, available=3.31)])
    assert (without, notes) == (now.setup, ())


@pytest.mark.parametrize(
    "change",
    [
        {"gpu": "RTX 3090"},
        {"vllm": "0.12.0"},
        {"gpu_memory": "22GiB"},
    ],
)
def test_another_card_release_or_total_gets_nothing(change: dict[str, str]) -> None:
    now = prediction(**change)
    assert with_learned(now.setup, [kept_of_it()]) == (now.setup, ())


@pytest.mark.parametrize("sizes", [{"total": 1}, {"total": 1 << 45}, {"other": 1 << 49}, {"available": 1 << 44}])
def test_figures_that_the_card_cannot_have_are_left_alone(sizes: dict[str, int]) -> None:
    odd = measured(start(), **{"weights": 14.99, **{name: size / GIB for name, size in sizes.items()}})
    setup = start().setup
    assert with_learned(setup, [odd]) == (setup, ())


def test_another_number_of_gpus_gets_the_total_alone() -> None:
    now = prediction(LLAMA, "-tp", "2", gpu="2x RTX 4090")
    setup, _ = with_learned(now.setup, [kept_of_it()])
    assert not setup.measured
    assert setup.machine.device.total_bytes == int(23.64 * GIB)


def test_the_nearest_is_taken_and_the_newest_of_equals() -> None:
    def kept(share: float, *words: str, day: int = 1) -> Measurement:
        return measured(prediction(LLAMA, *words), f"2026-02-{day:02}T00:00:00+00:00", available=share)

    eager = ("--enforce-eager", "--kv-cache-dtype", "fp8")
    every = [
        kept(1.0, *eager, day=9),
        kept(2.0, "--max-model-len", "4096", day=2),
        kept(3.0, "--max-model-len", "4096", day=1),
    ]
    setup, _ = with_learned(prediction(LLAMA, "--max-model-len", "8192").setup, every)
    assert setup.measured["available"] == 2 * GIB
    setup, _ = with_learned(prediction(LLAMA, *eager, "--max-model-len", "8192").setup, every)
    assert setup.measured["available"] == GIB


def test_remedies_are_priced_from_it() -> None:
    now = prediction(LLAMA, "--max-model-len", "40000")
    setup, _ = with_learned(now.setup, [kept_of_it()])
    moved = setup.with_args(gpu_memory_utilization=0.95)
    assert available(moved) - available(setup) == pytest.approx(0.05 * 23.64 * GIB, abs=0.01 * GIB)


WORDS = st.lists(
    st.sampled_from(
        "--max-model-len --max-num-seqs 1 0 -5 64 9999999999 --tensor-parallel-size 2 --kv-cache-dtype fp8 nonsense"
        " --speculative-config {} --attention-backend FLASHMLA --cpu-offload-gb --block-size 7".split()
    ),
    max_size=6,
)


@given(words=WORDS, size=st.integers(-(1 << 50), 1 << 50), name=st.sampled_from(["weights", "available", "total"]))
def test_whatever_was_imported_plans_hold_together(words: list[str], size: int, name: str) -> None:
    sizes = {**kept_of_it().sizes, name: size if name == "available" else abs(size)}
    kept = replace(kept_of_it(), words=tuple(words), sizes=sizes)
    setup, _ = with_learned(start().setup, [plain(), kept])
    found = predict(setup)
    assert found.ledger is None or found.ledger.available.low <= found.ledger.available.high
