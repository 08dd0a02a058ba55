"""vLLM's own worker on a pretended card: what it answers is what real machines logged and what the rules say."""

from __future__ import annotations

import pytest

from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request
from kvroom.tracing.engines import Engine
from kvroom.tracing.exact import Exact, exact_plan
from kvroom.units import GIB
from kvroom.vllm.kv.capacity import capacity
from tests.engine import environment

pytestmark = pytest.mark.engine
SEQUENCES = ("--max-num-seqs", "1024", "--max-num-batched-tokens", "8192")


def traced(release: str, model: str, *words: str, gpu: str = "H100") -> Exact:
    python = environment.python()
    if python is None:
        pytest.skip("no vLLM here: run tests/engine/environment.py first")
    tree = environment.trees().get(release)
    if tree is None and release != environment.NEWEST:
        pytest.skip(f"vLLM {release} is not unpacked here")
    engine = Engine(python, (tree,) if tree else (), release, "--python")
    plan = plan_tokens([model, *words], {}, Request(gpu=gpu, vllm=release, offline=True))
    return exact_plan(plan, offline=True, engine=engine)


@pytest.mark.parametrize(
    ("release", "model", "activation"),
    [
        ("0.19.1", "meta-llama/Llama-3.1-8B-Instruct", 1.89),
        ("0.19.1", "Qwen/Qwen3-8B", 2.21),
    ],
)
def test_the_activation_peak_is_what_an_h100_logged(release: str, model: str, activation: float) -> None:
    """Logged by vLLM 0.19 on an H100 with 1,024 sequences and 8,192 batched tokens."""
    exact = traced(release, model, *SEQUENCES)

    assert exact.answer is not None, exact.problem
    assert abs(exact.answer.activation / GIB - activation) < 0.1


@pytest.mark.parametrize("release", ["0.19.1", environment.NEWEST])
def test_weights_and_plans_are_those_of_the_rules(release: str) -> None:
    exact = traced(release, "Qwen/Qwen3-8B", "--max-model-len", "16384")

    assert exact.answer is not None, exact.problem
    prediction = exact.plan.prediction
    assert prediction.layout is not None
    assert prediction.settings is not None
    assert exact.answer.weights / GIB == pytest.approx(15.268, rel=0.005)
    for pool in exact.answer.pools:
        ours = capacity(prediction.layout, pool["available"], prediction.settings)
        assert (ours.num_blocks, ours.tokens) == (pool["num_blocks"], pool["tokens"])
    assert exact.answer.settings["max_model_len"] == prediction.settings.max_model_len
    assert exact.answer.settings["max_num_seqs"] == prediction.settings.max_num_seqs
    assert exact.answer.settings["max_num_batched_tokens"] == prediction.settings.max_num_batched_tokens


def test_a_model_that_cannot_be_built_names_the_step() -> None:
    exact = traced(environment.NEWEST, "Qwen/Qwen3-8B", "--hf-overrides", '{"architectures": ["NoSuchModel"]}')

    assert exact.answer is None
    assert "resolve the configuration" in exact.problem


@pytest.mark.parametrize(
    ("model", "words", "gpu"),
    [
        ("Qwen/Qwen3-8B", (), "RTX 4090"),
        ("mistralai/Mistral-7B-Instruct-v0.3", (), "A100-80GB"),
        ("Qwen/Qwen3-30B-A3B", ("--max-num-seqs", "64"), "H100"),
        ("meta-llama/Llama-3.1-8B-Instruct", ("-tp", "2", "-pp", "2", "--max-num-seqs", "256"), "4x H100"),
    ],
)
def test_the_fast_path_says_what_a_fresh_trace_says(model: str, words: tuple[str, ...], gpu: str) -> None:
    """Launches that the packaged factors were not made from: other cards, sequences, splits, an architecture."""
    ruled = plan_tokens([model, *words], {}, Request(gpu=gpu, vllm=environment.NEWEST, offline=True)).prediction
    exact = traced(environment.NEWEST, model, *words, gpu=gpu)

    assert exact.answer is not None, exact.problem
    assert ruled.ledger is not None
    off = abs(exact.answer.activation - ruled.ledger.activation.expected)
    assert off < max(0.1 * GIB, 0.05 * exact.answer.activation)
    assert ruled.backend is not None
    assert set(exact.answer.backends) == {ruled.backend.name}


def test_a_blackwell_card_decides_the_backend() -> None:
    exact = traced(environment.NEWEST, "Qwen/Qwen3-8B", gpu="B200")

    assert exact.answer is not None, exact.problem
    assert exact.plan.prediction.backend is not None
    assert set(exact.answer.backends) == {exact.plan.prediction.backend.name} == {"FLASHINFER"}
