"""One launch, predicted: the ledger, the KV pool and the verdict.

This is what everything else asks, so it is kept cheap: under a millisecond once the model is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvroom.devices.device import Machine
from kvroom.errors import EngineError
from kvroom.ledger.activation import activation_peak
from kvroom.ledger.entries import Basis, Entry, Ledger, close, exact
from kvroom.ledger.overhead import cuda_graphs, non_torch
from kvroom.ledger.verdict import Outcome, Status, Verdict, judge
from kvroom.models.shape import ModelShape
from kvroom.units import GIB, show_bytes
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.backends import BackendChoice, choose_backend
from kvroom.vllm.defaults import StartRefused, resolve
from kvroom.vllm.kv.capacity import Pool, capacity_of_stages
from kvroom.vllm.kv.layout import KvLayout, layout_of
from kvroom.vllm.messages import gib_in_log
from kvroom.vllm.releases import Release
from kvroom.vllm.rules import Rules, rules_for
from kvroom.vllm.settings import Settings
from kvroom.vllm.weights.loaded import loaded_weights


@dataclass(frozen=True, slots=True)
class Setup:
    """A model on a machine, launched by one vLLM release with the given arguments."""

    shape: ModelShape
    args: EngineArgs
    machine: Machine
    release: Release
    draft: ModelShape | None = None
    """The separate model that proposes tokens, when one is configured."""
    measured: Mapping[str, int] = field(default_factory=dict)
    """Entries read from a log of this machine, in bytes by entry name; they replace the prediction."""
    logged_args: EngineArgs | None = None
    """Arguments of the launch that logged ``available``, where they differ from this one's."""
    without: frozenset[str] = frozenset()
    """Packages that the vLLM environment lacks, e.g. ``flashinfer``."""

    def with_args(self, **changes: object) -> Setup:
        """The same setup with some arguments changed."""
        return replace(self, args=replace(self.args, **changes))  # type: ignore[arg-type]


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
    """The ledger, pool and verdict of ``setup``; refusals of vLLM are verdicts, not exceptions."""
    rules = rules_for(setup.release)
    try:
        settings = resolve(setup.args, setup.shape, setup.machine, rules)
    except StartRefused as refusal:
        return Prediction(setup, rules, Verdict(Status.FAILS, refusal.stage, refusal.message))
    backend = choose_backend(setup.shape, setup.args, settings, setup.machine.device, without=setup.without)
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
    ledgers = [_ledger(setup, settings, backend, stage) for stage in stages]
    override = setup.args.num_gpu_blocks_override
    pools, outcomes = [], []
    for side, end in zip((-1, 0, 1), ("low", "expected", "high"), strict=True):
        available = [getattr(ledger.available, end) for ledger in ledgers]
        pools.append(capacity_of_stages(layouts, available, settings, override))
        outcomes.append(_outcome(setup, settings, ledgers, pools[-1], side))
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


def _ledger(setup: Setup, settings: Settings, backend: BackendChoice, stage: int) -> Ledger:
    shape, args = setup.shape, setup.args
    held = loaded_weights(shape, args, settings.rules, setup.machine.device, stage=stage, draft=setup.draft)
    weights = Entry("weights", held.low, held.expected, held.high, Basis(held.basis), held.why, held.source)
    activation = activation_peak(
        shape,
        args,
        settings,
        setup.machine.device,
        first_stage=stage == 0,
        last_stage=stage == args.pipeline_parallel_size - 1,
    )
    other = non_torch(setup.machine.device, args, settings)
    graphs = cuda_graphs(shape, args, settings)
    parts = [_measured(setup, entry) for entry in _with_workspace(backend, weights, other, graphs)]
    parts.insert(1, _measured(setup, activation))
    ledger = close(_requested(setup, settings), *parts)
    fixed = args.kv_cache_memory_bytes
    if fixed is not None:
        words = "exactly --kv-cache-memory-bytes, which replaces the profile and the utilisation"
        return replace(ledger, available=exact("available", fixed, Basis.COMPUTED, words))
    if "available" in setup.measured:
        return replace(ledger, available=_anchored(setup, ledger, stage))
    return ledger


def _anchored(setup: Setup, ledger: Ledger, stage: int) -> Entry:
    """What this machine logged as available, moved by what the changed flags move.

    The errors of entries that did not change cancel, so only the changes are uncertain.
    """
    logged = setup.measured["available"]
    if setup.logged_args is None:
        return exact("available", logged, Basis.MEASURED, "as this machine logged it")
    measured = {name: size for name, size in setup.measured.items() if name != "available"}
    then = replace(setup, args=setup.logged_args, logged_args=None, measured=measured)
    settings = resolve(then.args, then.shape, then.machine, rules_for(then.release))
    backend = choose_backend(then.shape, then.args, settings, then.machine.device, without=then.without)
    before = _ledger(then, settings, backend, stage)
    moved = ledger.available.expected - before.available.expected
    doubts = [
        max(
            abs(now.low - old.low - (now.expected - old.expected)),
            abs(now.high - old.high - (now.expected - old.expected)),
        )
        for now, old in zip(ledger, before, strict=True)
        if now.name != "available"
    ]
    doubt = int(sum(doubt**2 for doubt in doubts) ** 0.5)
    words = f"{show_bytes(logged)} that this machine logged, moved by {show_bytes(moved)} for the changed flags"
    return Entry("available", logged + moved - doubt, logged + moved, logged + moved + doubt, Basis.MEASURED, words)


def _with_workspace(backend: BackendChoice, weights: Entry, other: Entry, graphs: Entry) -> list[Entry]:
    """The entries with the backend's workspace in the one where vLLM's measurement shows it."""
    n_bytes = backend.workspace_bytes
    if not n_bytes:
        return [weights, other, graphs]
    entries = {"load": weights, "graphs": graphs}
    chosen = entries.get(backend.workspace_in, other)
    if chosen is graphs and graphs.expected == 0:
        chosen = other
    larger = replace(
        chosen,
        low=chosen.low + n_bytes,
        expected=chosen.expected + n_bytes,
        high=chosen.high + n_bytes,
        why=f"{chosen.why}; {show_bytes(n_bytes)} workspace of {backend.name}",
    )
    return [larger if entry is chosen else entry for entry in (weights, other, graphs)]


def _measured(setup: Setup, entry: Entry) -> Entry:
    n_bytes = setup.measured.get(entry.name)
    if n_bytes is None:
        return entry
    return exact(entry.name, n_bytes, Basis.MEASURED, "as this machine logged it")


def _requested(setup: Setup, settings: Settings) -> Entry:
    device = setup.machine.device
    rule = settings.rules.rule("requested_rounding")
    util = settings.gpu_memory_utilization

    def share(total: int) -> int:
        return math.ceil(total * util) if rule.value == "ceil" else int(total * util)

    return Entry(
        "requested",
        share(device.total_low),
        share(device.total_bytes),
        share(device.total_high),
        Basis(device.basis),
        f"{device.total_bytes / GIB:.2f} GiB that torch reports x utilisation {util:g}",
        rule.source,
    )


def _outcome(setup: Setup, settings: Settings, ledgers: Sequence[Ledger], pool: Pool, side: int) -> Outcome:
    """What happens when every part lies on the same side of its interval (-1 low, 0 expected, 1 high pool)."""
    rules = settings.rules
    requested = ledgers[0].requested.expected
    total = setup.machine.device.total_bytes
    free = setup.machine.free_bytes
    if free is not None and free < requested and rules["startup_free_memory_check"]:
        message = rules["free_memory_message"].format(
            free=gib_in_log(free, rules),
            total=gib_in_log(total, rules),
            util=settings.gpu_memory_utilization,
            requested=gib_in_log(requested, rules),
        )
        return Outcome(False, "device_memory_check", message)
    room = free if free is not None else total
    if any(_on_side(ledger.weights, side) > room for ledger in ledgers):
        return Outcome(False, "weight_load", rules["load_failed_message"])
    if any(_on_side(ledger.weights, side) + _on_side(ledger.activation, side) > room for ledger in ledgers):
        return Outcome(False, "profile", "CUDA out of memory.")
    if not pool.fits:
        return Outcome(False, "kv_sizing", pool.error)
    fixed = setup.args.kv_cache_memory_bytes or 0
    if any(_on_side(ledger.weights, side) + _on_side(ledger.other, side) + fixed > room for ledger in ledgers):
        return Outcome(False, "kv_alloc", "CUDA out of memory.")
    return Outcome(True)


def _on_side(entry: Entry, side: int) -> int:
    return (entry.expected, entry.low, entry.high)[side]
