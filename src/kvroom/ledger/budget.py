"""The ledger of one GPU of one pipeline stage: predicted, or moved from what a log measured."""

from __future__ import annotations

import math
from dataclasses import replace

from kvroom.ledger.activation import activation_peak
from kvroom.ledger.distance import calibrated, distance_of
from kvroom.ledger.entries import Basis, Entry, Ledger, close, exact
from kvroom.ledger.overhead import cuda_graphs, non_torch
from kvroom.ledger.setup import Setup
from kvroom.units import GIB, show_bytes
from kvroom.vllm.backends import BackendChoice, choose_backend
from kvroom.vllm.defaults import resolve
from kvroom.vllm.rules import rules_for
from kvroom.vllm.settings import Settings
from kvroom.vllm.weights.loaded import loaded_weights

_TRACE_BELOW, _TRACE_ABOVE = 32 * 2**20, 96 * 2**20
"""Bytes by which a traced activation peak may be off: it runs 0.04 GiB below what dense models logged, since
temporaries inside of operators and workspaces are not tensors."""


def ledger_of(setup: Setup, settings: Settings, backend: BackendChoice, stage: int) -> Ledger:
    """The ledger of pipeline stage ``stage``.

    What a log measured replaces the prediction. Where the log was of other arguments, it is moved by what
    the prediction says that the change moves, so that the errors of what did not change cancel.
    """
    ledger = _predicted(setup, settings, backend, stage)
    fixed = setup.args.kv_cache_memory_bytes
    if fixed is not None:
        words = "exactly --kv-cache-memory-bytes, which replaces the profile and the utilisation"
        return replace(ledger, available=exact("available", fixed, Basis.COMPUTED, words))
    if not setup.measured and not setup.traced:
        return ledger
    before = ledger if setup.logged_args is None else _as_logged(setup, stage)
    parts = [
        _moved(setup, stage, now, then) for now, then in zip(ledger, before, strict=True) if now.name != "available"
    ]
    found = close(*parts)
    if "available" in setup.measured:
        return replace(found, available=_available(setup.measured["available"], ledger, before, setup.repeats))
    return found


def _predicted(setup: Setup, settings: Settings, backend: BackendChoice, stage: int) -> Ledger:
    shape, args, device = setup.shape, setup.args, setup.machine.device
    held = loaded_weights(shape, args, settings.rules, device, stage=stage, draft=setup.draft)
    weights = Entry("weights", held.low, held.expected, held.high, Basis(held.basis), held.why, held.source)
    activation = activation_peak(
        shape,
        args,
        settings,
        device,
        first_stage=stage == 0,
        last_stage=stage == args.pipeline_parallel_size - 1,
    )
    other = non_torch(shape, args, settings, device)
    graphs = cuda_graphs(shape, args, settings, device)
    weights, other, graphs = _with_workspace(backend, weights, other, graphs)
    distance = distance_of(shape, args, settings, device, activation)
    return calibrated(close(_requested(setup, settings), weights, activation, other, graphs), distance)


def _as_logged(setup: Setup, stage: int) -> Ledger:
    """What is predicted for the launch that was logged."""
    assert setup.logged_args is not None
    then = replace(setup, args=setup.logged_args, logged_args=None, measured={}, traced=())
    settings = resolve(then.args, then.shape, then.machine, rules_for(then.release))
    backend = choose_backend(then.shape, then.args, settings, then.machine.device, without=then.without)
    return _predicted(then, settings, backend, stage)


def _doubt(now: Entry, then: Entry) -> int:
    """Bytes by which the difference of two predictions of one entry may be wrong."""
    moved = now.expected - then.expected
    return max(abs(now.low - then.low - moved), abs(now.high - then.high - moved))


def _moved(setup: Setup, stage: int, now: Entry, then: Entry) -> Entry:
    known = setup.known(now.name, stage)
    if known is None:
        return now
    logged, basis = known
    moved = now.expected != then.expected
    expected, doubt = logged + now.expected - then.expected, _doubt(now, then)
    low, high, how = expected - doubt, expected + doubt, "as this machine logged it"
    if basis is Basis.TRACED:
        how = "as vLLM's own code allocates it"
        if now.name == "activation":
            low, high = low - _TRACE_BELOW, high + _TRACE_ABOVE
    words = f"{how}, moved by the changed flags" if moved else how
    if moved and basis is Basis.MEASURED:
        basis = now.basis
    return Entry(now.name, low, expected, high, basis, f"{words}: {now.why}", cause=now.cause)


def _available(logged: int, now: Ledger, then: Ledger, repeats: int) -> Entry:
    moved = now.available.expected - then.available.expected
    parts = [pair for pair in zip(now, then, strict=True) if pair[0].name != "available"]
    doubt = int((repeats**2 + sum(_doubt(*pair) ** 2 for pair in parts)) ** 0.5)
    words = f"{show_bytes(logged)} that this machine logged"
    if moved:
        words += f", moved by {show_bytes(moved)} for the changed flags"
    changed = [part.basis for part, before in parts if part.expected != before.expected]
    basis = max(changed, key=list(Basis).index, default=Basis.MEASURED)
    return Entry("available", logged + moved - doubt, logged + moved, logged + moved + doubt, basis, words)


def _with_workspace(backend: BackendChoice, weights: Entry, other: Entry, graphs: Entry) -> list[Entry]:
    """The entries with the backend's workspace in the one where vLLM's measurement shows it."""
    n_bytes = backend.workspace_bytes
    if not n_bytes:
        return [weights, other, graphs]
    seen = backend.workspace_in
    chosen = graphs if "graphs" in seen else weights if seen == "load" else other
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
