"""A plan from vLLM's own code: what is asked, what its answer changes, and what happens where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvroom.ledger.entries import Basis
from kvroom.ledger.verdict import Status
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request
from kvroom.report.exact import alike, described, exact_data, sizes_of
from kvroom.tracing.engines import Engine
from kvroom.tracing.exact import exact_plan
from kvroom.tracing.question import Inquiry, Question, inquiry_about
from kvroom.tracing.run import Answer, Tensor, TraceFailed

ENGINE = Engine(Path("python"), (), "0.28.0", "kept")
GIB = 2**30


def plan(*words: str, gpu: str = "H100", vllm: str = "0.28.0") -> Plan:
    return plan_tokens(words, {}, Request(gpu=gpu, vllm=vllm, offline=True))


class Asked:
    """Answers like vLLM's code would, and remembers the question."""

    def __init__(
        self,
        *,
        blocks: int | None = None,
        backend: str = "FLASH_ATTN",
        fails: TraceFailed | None = None,
        settings: dict[str, object] | None = None,
    ) -> None:
        self.blocks, self.backend, self.fails, self.settings = blocks, backend, fails, settings or {}
        self.inquiry: Inquiry | None = None
        self.config: dict[str, object] = {}

    def __call__(self, engine: Engine, inquiry: Inquiry, on_step: Callable[[str], None]) -> list[Answer | TraceFailed]:
        self.inquiry = inquiry
        self.config = json.loads((Path(inquiry.questions[0].argv[1]) / "config.json").read_text("utf-8"))
        on_step("build the model")
        return [self.fails or self.answer(engine, question) for question in inquiry.questions]

    def answer(self, engine: Engine, question: Question) -> Answer:
        pools = tuple({"available": size, "num_blocks": self.blocks} for size in question.available if self.blocks)
        peak = tuple(Tensor(622_329_856, (1024, 151936), "float32", name) for name in ("aten.softmax.int", "aten.to"))
        held = (15 + question.rank) * GIB
        return Answer(
            vllm_version=engine.version,
            settings=self.settings,
            weights=held,
            activation=2 * GIB,
            requested=70 * GIB,
            backends={self.backend: 32},
            pools=pools,
            at_peak=peak,
            phase="sampler",
            place="v1/sample/sampler.py: sample",
            runner="vllm.v1",
            guessed=(),
            seconds=9.0,
            peak_rss=GIB,
        )


def test_the_question_holds_the_config_the_card_and_the_flags() -> None:
    asker = Asked()

    exact_plan(plan("Qwen/Qwen3-8B", "--max-model-len", "8192", "-tp", "2", gpu="2x H100"), engine=ENGINE, asker=asker)

    assert asker.inquiry is not None
    (question,) = asker.inquiry.questions
    assert question.argv[0] == "--model"
    assert question.argv[2:] == ("--max-model-len", "8192", "-tp", "2")
    assert asker.config["model_type"] == "qwen3"
    assert asker.inquiry.card["capability"] == [9, 0]
    assert not Path(question.argv[1]).exists(), "the folder with the config is removed"


@pytest.mark.parametrize("words", [("--model", "Qwen/Qwen3-8B", "--seed", "1"), ("Qwen/Qwen3-8B", "--seed", "1")])
def test_the_model_is_taken_out_of_the_words(words: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        inquiry = inquiry_about(plan(*words).prediction.setup, words, offline=True, stack=stack)

    assert inquiry.questions[0].argv[2:] == ("--seed", "1")


def test_what_was_traced_replaces_the_rules_and_says_so() -> None:
    before = plan("Qwen/Qwen3-8B")
    exact = exact_plan(before, engine=ENGINE, asker=Asked())

    ledger = exact.plan.prediction.ledger
    assert ledger is not None
    assert (ledger.weights.expected, ledger.weights.basis) == (15 * GIB, Basis.TRACED)
    assert ledger.activation.basis is Basis.TRACED
    assert ledger.activation.low < 2 * GIB < ledger.activation.high
    assert ledger.requested == before.prediction.ledger.requested  # type: ignore[union-attr]
    assert any("traced by vLLM 0.28.0" in note for note in exact.plan.notes)


def test_every_pipeline_stage_is_asked_and_the_poorest_limits() -> None:
    asker = Asked(blocks=7)
    exact = exact_plan(plan("Qwen/Qwen3-8B", "-tp", "2", "-pp", "2", gpu="4x H100"), engine=ENGINE, asker=asker)

    assert asker.inquiry is not None
    assert [question.rank for question in asker.inquiry.questions] == [0, 2]
    ledger = exact.plan.prediction.ledger
    assert ledger is not None
    assert exact.plan.prediction.stage == 1
    assert ledger.weights.expected == 17 * GIB
    assert exact.answer is not None
    assert exact.answer.weights == 17 * GIB
    assert not any("planner" in note for note in exact.plan.notes)


def test_what_a_log_measured_stays_beside_the_trace() -> None:
    tokens = ["Qwen/Qwen3-8B"]
    request = Request(gpu="H100", vllm="0.28.0", offline=True, measured={"other": GIB})
    exact = exact_plan(plan_tokens(tokens, {}, request), engine=ENGINE, asker=Asked())

    ledger = exact.plan.prediction.ledger
    assert ledger is not None
    assert (ledger.other.expected, ledger.other.basis) == (GIB, Basis.MEASURED)
    assert (ledger.weights.expected, ledger.weights.basis) == (15 * GIB, Basis.TRACED)


def test_a_planner_that_disagrees_is_told() -> None:
    exact = exact_plan(plan("Qwen/Qwen3-8B"), engine=ENGINE, asker=Asked(blocks=7))

    assert any("vLLM's planner makes 7 blocks" in note for note in exact.plan.notes)


def test_a_backend_that_disagrees_is_told() -> None:
    exact = exact_plan(plan("Qwen/Qwen3-8B"), engine=ENGINE, asker=Asked(backend="FLASHINFER"))

    assert any("chooses FLASHINFER, the rules FLASH_ATTN" in note for note in exact.plan.notes)


def test_where_it_stops_the_rules_answer_and_the_step_is_named() -> None:
    before = plan("Qwen/Qwen3-8B")
    failed = TraceFailed("build the model", "ModuleNotFoundError: No module named 'cutlass'")

    exact = exact_plan(before, engine=ENGINE, asker=Asked(fails=failed))

    assert exact.answer is None
    assert exact.plan.prediction == before.prediction
    assert any("'build the model'" in note and "cutlass" in note for note in exact.plan.notes)


@pytest.mark.parametrize(
    ("words", "gpu", "vllm", "says"),
    [
        (("Qwen/Qwen3-8B",), "MI300X", "0.28.0", "only NVIDIA"),
        (("Qwen/Qwen2.5-7B-Instruct",), "H100", "0.6.6", "V0"),
        (("Qwen/Qwen3-8B", "--max-model-len", "9999999"), "H100", "0.28.0", "refuses"),
    ],
)
def test_what_is_not_traced_says_why(words: tuple[str, ...], gpu: str, vllm: str, says: str) -> None:
    exact = exact_plan(plan(*words, gpu=gpu, vllm=vllm), engine=ENGINE, asker=Asked())

    assert says in exact.problem
    assert exact.answer is None


def test_the_report_names_what_is_alive_at_the_peak() -> None:
    exact = exact_plan(plan("Qwen/Qwen3-8B"), engine=ENGINE, asker=Asked())
    data = exact_data(exact)

    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["kind"] == "dry-run"
    assert data["trace"]["at_peak"][0]["shape"] == [1024, 151936]
    assert data["trace"]["phase"] == "sampler"
    assert exact.answer is not None
    (same,) = alike(exact.answer.at_peak)
    words = "1.16 GiB  2 x [1,024 (max_num_seqs) x 151,936 (vocabulary)] float32 (aten.softmax.int, aten.to)"
    assert described(same, sizes_of(exact)).strip() == words


def test_an_encoder_that_was_left_out_leaves_both_to_the_rules() -> None:
    before = plan("Qwen/Qwen2.5-VL-7B-Instruct", "--max-model-len", "8192")
    exact = exact_plan(before, engine=ENGINE, asker=Asked(settings={"encoder": "left out"}))

    ledger, ruled = exact.plan.prediction.ledger, before.prediction.ledger
    assert ledger is not None
    assert ruled is not None
    assert (ledger.activation, ledger.weights) == (ruled.activation, ruled.weights)
    assert any("encoder was not traced" in note for note in exact.plan.notes)


def test_a_stand_in_that_is_not_quantised_is_not_traced() -> None:
    exact = exact_plan(plan("someone/Qwen3-8B-AWQ"), engine=ENGINE, asker=Asked())

    assert "does not say how someone/Qwen3-8B-AWQ is quantised" in exact.problem


def test_a_stand_in_has_the_length_that_is_asked_of_it() -> None:
    asker = Asked()
    exact_plan(plan("Qwen3-Coder-30B-A3B-Instruct", "--max-model-len", "100000"), engine=ENGINE, asker=asker)

    assert asker.config["max_position_embeddings"] >= 100_000  # type: ignore[operator]


def test_text_alone_asks_for_no_encoder() -> None:
    words = ("Qwen/Qwen2.5-VL-7B-Instruct", "--limit-mm-per-prompt", '{"image": 0, "video": 0}')
    exact = exact_plan(plan(*words), engine=ENGINE, asker=Asked(settings={"encoder": "left out"}))

    assert exact.plan.prediction.ledger is not None
    assert exact.plan.prediction.ledger.activation.basis is Basis.TRACED


def test_code_of_the_model_that_ran_is_told() -> None:
    exact = exact_plan(plan("Qwen/Qwen3-8B"), engine=ENGINE, asker=Asked(settings={"remote_code": True}))

    assert any("own code was run" in note for note in exact.plan.notes)


def test_a_configuration_that_vllm_refuses_is_not_said_to_start() -> None:
    problem = "ValidationError: Unknown quantization method: nope."
    asked = Asked(fails=TraceFailed("resolve the configuration", problem))
    exact = exact_plan(plan("Qwen/Qwen3-8B", "--max-model-len", "8192"), offline=True, asker=asked, engine=ENGINE)

    assert exact.plan.verdict.status is Status.UNKNOWN
    assert exact.plan.verdict.message == "Unknown quantization method: nope."
    assert exact.plan.prediction.ledger is None
    assert not exact.plan.advice.remedies


def test_what_the_trace_is_short_of_leaves_the_answer_of_the_rules() -> None:
    asked = Asked(fails=TraceFailed("resolve the configuration", "KeyError: '-'"))
    exact = exact_plan(plan("Qwen/Qwen3-8B", "--max-model-len", "8192"), offline=True, asker=asked, engine=ENGINE)

    assert exact.plan.verdict.status is Status.FITS
    assert "The rules answer instead." in exact.plan.notes[-1]


def test_without_flashinfer_nothing_is_sampled_with_it() -> None:
    words = ("Qwen/Qwen3-8B", "--max-model-len", "8192")
    with ExitStack() as stack:
        for without, said in (((), None), (("flashinfer",), "0")):
            request = Request(gpu="H100", vllm="0.32.0", offline=True, without=without)
            setup = plan_tokens(words, {}, request).prediction.setup
            inquiry = inquiry_about(setup, words, offline=True, stack=stack)
            assert inquiry.env.get("VLLM_USE_FLASHINFER_SAMPLER") == said
