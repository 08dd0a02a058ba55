"""One launch, predicted: the ledger, the KV pool and the verdict.

This is what everything else asks, so it is kept cheap: under a millisecond once the model is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvroom.errors import EngineError
from kvroom.ledger.budget import ledger_of
from kvroom.ledger.entries import Ledger
from kvroom.ledger.outcome import outcome_of
from kvroom.ledger.setup import Setup
from kvroom.ledger.verdict import Status, Verdict, judge
from kvroom.vllm.backends import BackendChoice, choose_backend
from kvroom.vllm.defaults import StartRefused, resolve
from kvroom.vllm.kv.capacity import Pool, capacity_of_stages
from kvroom.vllm.kv.layout import KvLayout, layout_of
from kvroom.vllm.parallel import deals
from kvroom.vllm.rules import Rules, rules_for
from kvroom.vllm.settings import Settings

UNEVEN_HEADS = "AssertionError"
"""All that a model's attention layer says about KV heads that cannot be dealt (model_executor/models/llama.py)."""
EMPTY_STAGE = "AssertionError: group_size must be greater than 0"
"""What the planner says of a pipeline stage without a cache (kv_cache_utils.py: get_kv_cache_config_from_groups)."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What vLLM will do with a setup. Parts are None when it stops before they exist."""

    setup: Setup
    rules: Rules
    verdict: Verdict
    settings: Settings | None = None
    backend: BackendChoice | None = None
    ledger: Ledger | None = None
    layout: KvLayout | None = None
    pool: Pool | None = None
    pool_low: Pool | None = None
    pool_high: Pool | None = None
    stage: int = 0
    """The pipeline stage that limits the pool, the one described here."""


def predict(setup: Setup) -> Prediction:
    """The ledger, pool and verdict of ``setup``; refusals of vLLM are verdicts, not exceptions.

    Flags that the release does not have end the launch, whatever the ledger says.
    """
    found = _predict(setup)
    if not setup.args.unknown:
        return found
    message = f"vllm serve: error: unrecognized arguments: {' '.join(setup.args.unknown)}"
    return replace(found, verdict=Verdict(Status.FAILS, "config", message))


def _predict(setup: Setup) -> Prediction:
    rules = rules_for(setup.release)
    try:
        settings = resolve(setup.args, setup.shape, setup.machine, rules)
    except StartRefused as refusal:
        return Prediction(setup, rules, Verdict(Status.FAILS, refusal.stage, refusal.message))
    shape = setup.shape
    if shape.heads and not deals(shape.heads, shape.kv_heads, setup.args.tensor_parallel_size):
        return Prediction(setup, rules, Verdict(Status.FAILS, "weight_load", UNEVEN_HEADS), settings)
    backend = choose_backend(shape, setup.args, settings, setup.machine.device, without=setup.without)
    return predict_resolved(setup, settings, backend)


def predict_resolved(setup: Setup, settings: Settings, backend: BackendChoice) -> Prediction:
    """The prediction of a launch whose settings and backend are known: a search over cards finds them once a class."""
    rules = settings.rules
    if backend.error:
        verdict = Verdict(Status.FAILS, "weight_load", backend.error)
        return Prediction(setup, rules, verdict, settings, backend)
    try:
        return _sized(setup, settings, backend)
    except EngineError as refusal:
        stage = refusal.stage if isinstance(refusal, StartRefused) else "kv_sizing"
        return Prediction(setup, rules, Verdict(Status.FAILS, stage, refusal.problem), settings, backend)


def _sized(setup: Setup, settings: Settings, backend: BackendChoice) -> Prediction:
    """The prediction of a launch that reaches the KV cache; one ledger for each pipeline stage."""
    stages = range(setup.args.pipeline_parallel_size)
    if len(stages) > max(1, len(setup.shape.caches)):
        raise StartRefused(EMPTY_STAGE, "kv_sizing")
    layouts = [
        layout_of(
            setup.shape,
            setup.args,
            settings,
            backend.name,
            backend.block_size,
            stage=stage,
            draft=setup.draft,
            capability=setup.machine.device.compute_capability,
        )
        for stage in stages
    ]
    if any(layout.groups and not layout.bytes_per_block for layout in layouts):
        raise StartRefused(EMPTY_STAGE, "kv_sizing")
    ledgers = [ledger_of(setup, settings, backend, stage) for stage in stages]
    override = setup.args.num_gpu_blocks_override
    pools, outcomes = [], []
    for side, end in zip((-1, 0, 1), ("low", "expected", "high"), strict=True):
        available = [getattr(ledger.available, end) for ledger in ledgers]
        pools.append(capacity_of_stages(layouts, available, settings, override))
        outcomes.append(outcome_of(setup, settings, ledgers, pools[-1], side))
    poorest = min(stages, key=lambda stage: ledgers[stage].available.expected // (layouts[stage].bytes_per_block or 1))
    return Prediction(
        setup,
        settings.rules,
        judge(*outcomes),
        settings,
        backend,
        ledgers[poorest],
        layouts[poorest],
        pools[1],
        pools[0],
        pools[2],
        poorest,
    )


__all__ = ["Prediction", "Setup", "predict", "predict_resolved"]
