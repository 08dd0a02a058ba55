"""A plan whose weights, activation peak and pool come from vLLM's own code, or from the rules with the reason why."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvroom.errors import KvroomError
from kvroom.ledger.encoder import encodes
from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status, Verdict
from kvroom.plans.plan import Plan
from kvroom.tracing.engines import Engine, find_engine
from kvroom.tracing.question import inquiry_about
from kvroom.tracing.run import CONFIGURATION, Answer, Asker, TraceFailed, ask
from kvroom.units import show_bytes
from kvroom.vllm.kv.capacity import capacity

if TYPE_CHECKING:
    from kvroom.ledger.setup import Setup
    from kvroom.vllm.settings import Settings


_REFUSALS = ("ValidationError", "ValueError", "NotImplementedError", "AssertionError")
_MAYBE_HERE = (
    "vLLM's own code refuses the configuration. What refuses may be the environment asked (its transformers, files that"
    " are not here) rather than the launch: `kvroom plan` gives the answer of the rules."
)


@dataclass(frozen=True, slots=True)
class Exact:
    """A plan and the trace that it rests on."""

    plan: Plan
    answer: Answer | None
    """What vLLM's code said; None where it could not be asked, and ``problem`` says why."""
    engine: Engine | None = None
    problem: str = ""


def exact_plan(
    plan: Plan,
    *,
    python: str | None = None,
    offline: bool = False,
    on_step: Callable[[str], None] = lambda _: None,
    asker: Asker = ask,
    engine: Engine | None = None,
) -> Exact:
    """``plan`` with what vLLM's own code says in place of the rules.

    Where the release or the model cannot be traced, the plan of the rules is returned with a note that says at
    which step it stopped. Raises UsageError where there is no environment to run it in.
    """
    setup = plan.prediction.setup
    engine = engine or find_engine(setup.release, python)
    refused = not_traced(plan.prediction)
    if refused:
        return _by_rules(plan, engine, refused)
    ledger, stages = plan.prediction.ledger, range(setup.args.pipeline_parallel_size)
    try:
        with ExitStack() as stack:
            inquiry = inquiry_about(
                setup,
                plan.tokens,
                offline=offline,
                stack=stack,
                ranks=[stage * setup.args.tensor_parallel_size for stage in stages],
                available=[ledger.available.expected] if ledger and ledger.available.expected > 0 else [],
            )
            answers = asker(engine, inquiry, on_step)
    except KvroomError as error:
        return _by_rules(plan, engine, error.problem)
    told = [each for each in answers if isinstance(each, Answer)]
    for each in answers:
        if isinstance(each, TraceFailed):
            stopped = f"vLLM's own code stopped at the step '{each.step}': {each.problem}"
            return _refusal(plan, engine, each, stopped) if _refused(each) else _by_rules(plan, engine, stopped)
    prediction = predict(_with(setup, told))
    answer = told[prediction.stage]
    notes = (*plan.notes, *_notes(answer, engine, prediction, plan.prediction.settings))
    return Exact(replace(plan, prediction=prediction, notes=notes), answer, engine)


def _with(setup: Setup, answers: list[Answer]) -> Setup:
    """``setup`` with what was traced; what a log of other flags measured no longer counts."""
    traced = tuple(
        {} if _no_encoder(each, setup) else {"weights": each.weights, "activation": each.activation} for each in answers
    )
    measured = {} if setup.logged_args is not None else setup.measured
    return replace(setup, traced=traced, measured=measured, logged_args=None)


def _no_encoder(answer: Answer, setup: Setup) -> bool:
    """Whether the launch profiles an encoder that was left out of the trace, since its processor is not at hand."""
    return answer.settings.get("encoder") == "left out" and encodes(setup.shape, setup.args)


def not_traced(prediction: Prediction) -> str:
    """Why a launch is not even tried, empty where it is."""
    if prediction.settings is None:
        return f"vLLM refuses the configuration: {prediction.verdict.message}"
    if prediction.settings.engine == "V0":
        return "the V0 engine is not traced"
    if prediction.setup.machine.device.vendor != "NVIDIA":
        return "only NVIDIA cards are pretended"
    return ""


def _refused(failed: TraceFailed) -> bool:
    """Whether vLLM itself turned the configuration down, rather than the trace being short of something."""
    return failed.step == CONFIGURATION and failed.problem.startswith(_REFUSALS)


def _refusal(plan: Plan, engine: Engine, failed: TraceFailed, problem: str) -> Exact:
    """``plan`` without a ledger, since vLLM ends before it has one; elsewhere the launch may start."""
    verdict = Verdict(Status.UNKNOWN, "config", failed.problem.partition(": ")[2])
    prediction = Prediction(plan.prediction.setup, plan.prediction.rules, verdict)
    notes = (*plan.notes, _MAYBE_HERE)
    return Exact(replace(plan, prediction=prediction, notes=notes), None, engine, problem)


def _by_rules(plan: Plan, engine: Engine, problem: str) -> Exact:
    note = f"Not traced: {problem} The rules answer instead."
    return Exact(replace(plan, notes=(*plan.notes, note)), None, engine, problem)


def _notes(answer: Answer, engine: Engine, prediction: Prediction, settings: Settings | None) -> tuple[str, ...]:
    """Where the trace comes from, and where it disagrees with the rules."""
    setup = prediction.setup
    by = f"by vLLM {answer.vllm_version}'s own code ({engine.source}) in {answer.seconds:.0f} s."
    if _no_encoder(answer, setup):
        notes = [
            f"The text part was traced {by}",
            "Weights and activation are by the rules: the files of the model's processor are not here, so its encoder"
            " was not traced. Give a folder that holds them, or --language-model-only.",
        ]
    else:
        notes = [f"weights and activation traced {by}"]
    if answer.newer_transformers:
        notes.append("A newer transformers than the release's own was needed to understand the model's configuration.")
    if answer.settings.get("remote_code"):
        notes.append("The model's own code was run, since --trust-remote-code allows it.")
    backend = prediction.backend.name if prediction.backend else None
    traced = max(answer.backends, key=lambda name: answer.backends[name], default=None)
    if traced is not None and backend is not None and backend not in answer.backends:
        notes.append(f"vLLM's code chooses {traced}, the rules {backend}.")
    layout = prediction.layout
    alone = setup.args.pipeline_parallel_size == 1  # the pool of stages is that of the poorest
    for pool in answer.pools if alone else ():
        if layout is None or settings is None or "num_blocks" not in pool:
            continue
        ours = capacity(layout, pool["available"], settings)
        if ours.num_blocks != pool["num_blocks"]:
            notes.append(
                f"With {show_bytes(pool['available'])} vLLM's planner makes {pool['num_blocks']:,} blocks, the rules"
                f" {ours.num_blocks:,}."
            )
    return tuple(notes)
