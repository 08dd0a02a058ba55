"""Several models on one card: what each instance may take, so that they start in any order.

vLLM looks at the card's free memory before it loads (v1/worker/utils.py: request_memory): another instance that is
already up must leave the share that this one asks for. So each gets a share of its own footprint and a fixed cache
(--kv-cache-memory-bytes), and all footprints together stay within the card.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kvroom.devices.device import CONTEXT_GIB, Device, Machine
from kvroom.errors import EngineError, UsageError, short
from kvroom.ledger.overhead import graph_memory
from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status
from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request
from kvroom.sizing import quantities
from kvroom.sizing.judge import room_of
from kvroom.units import MIB, from_gib, show_bytes

_STEP = 64 * MIB
"""A cache's size is rounded up to whole steps."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One model that shares the card: what follows ``vllm serve``, its context and its requests at once."""

    words: tuple[str, ...]
    context: int
    concurrency: int = 1


@dataclass(frozen=True, slots=True)
class Instance:
    """The budget of one tenant."""

    tenant: Tenant
    cache_bytes: int
    """For --kv-cache-memory-bytes."""
    footprint_bytes: int
    """All that the instance may take of the card: CUDA context, weights, peak, graphs, cache."""
    utilization: float
    """For --gpu-memory-utilization: no more than the footprint."""
    tokens: tuple[str, ...]
    """The words after ``vllm serve``."""
    prediction: Prediction


@dataclass(frozen=True, slots=True)
class Sharing:
    """All instances and what the card has left."""

    device: Device
    instances: tuple[Instance, ...]
    spare_bytes: int
    """What no instance takes; below zero by what the card lacks."""

    @property
    def fits(self) -> bool:
        """Whether all of them fit, whatever order they start in."""
        return self.spare_bytes >= 0 and all(
            instance.prediction.verdict.status is not Status.FAILS for instance in self.instances
        )


def read_tenant(text: str, concurrency: int = 1) -> Tenant:
    """``MODEL@CONTEXT`` or ``MODEL@CONTEXT:CONCURRENCY``; UsageError for anything else.

    >>> read_tenant("Qwen/Qwen3-8B@16k:4")
    Tenant(words=('Qwen/Qwen3-8B',), context=16384, concurrency=4)
    """
    model, at, rest = text.rpartition("@")
    length, colon, count = rest.partition(":")
    if not at or not model or model.startswith("-"):
        raise UsageError(f"--with {short(text)}: not a model and its context.", "Write it as in Qwen/Qwen3-8B@16k:4.")
    many = quantities.counts(count, "--with")[0] if colon else concurrency
    return Tenant((model,), quantities.tokens(length, "--with"), many)


def share(tenants: Sequence[Tenant], device: Device, request: Request, env: Mapping[str, str]) -> Sharing:
    """The budgets of ``tenants`` on one ``device``; EngineError where vLLM refuses one of them whatever the memory."""
    instances = tuple(_instance(tenant, device, request, env) for tenant in tenants)
    spare = device.total_low - sum(instance.footprint_bytes for instance in instances)
    return Sharing(device, instances, spare)


def _instance(tenant: Tenant, device: Device, request: Request, env: Mapping[str, str]) -> Instance:
    words = (*tenant.words, "--max-model-len", str(tenant.context), "--max-num-seqs", str(tenant.concurrency))
    asked = replace(request, gpu="H100-SXM", learned=False)
    setup = replace(plan_tokens(words, env, asked).prediction.setup, machine=Machine(device, 1))
    alone = predict(setup)
    if alone.layout is None or alone.ledger is None or alone.settings is None:
        raise EngineError(f"{tenant.words[0]}: vLLM {setup.release} refuses it: {alone.verdict.message}")
    cache = _cache_bytes(alone, tenant)
    graphs = graph_memory(setup.shape, setup.args, alone.settings).high
    ledger = alone.ledger
    taken = ledger.weights.high + ledger.activation.high + ledger.other.high + max(ledger.cuda_graphs.high, int(graphs))
    footprint = taken + from_gib(CONTEXT_GIB[2]) + cache
    utilization = max(0.01, math.floor(100 * footprint / device.total_high) / 100)
    tokens = (*words, "--gpu-memory-utilization", f"{utilization:g}", "--kv-cache-memory-bytes", str(cache))
    final = predict(setup.with_args(gpu_memory_utilization=min(utilization, 1.0), kv_cache_memory_bytes=cache))
    return Instance(tenant, cache, footprint, utilization, tokens, final)


def _cache_bytes(alone: Prediction, tenant: Tenant) -> int:
    """Bytes for the tenant's requests, with the block that vLLM keeps for itself; enough for its start-up check."""
    layout = alone.layout
    assert layout is not None
    blocks = layout.request_blocks(tenant.context) * tenant.concurrency + 1
    wanted = max(blocks * layout.bytes_per_block, layout.needed_bytes(tenant.context) + layout.bytes_per_block)
    return -(-wanted // _STEP) * _STEP


def lacking(sharing: Sharing) -> str:
    """By how much the card is too small, in words; empty where it is not."""
    if sharing.fits:
        return ""
    refused = next((one for one in sharing.instances if one.prediction.verdict.status is Status.FAILS), None)
    if sharing.spare_bytes >= 0 and refused is not None:
        return f"{refused.tenant.words[0]} does not start: {refused.prediction.verdict.message}"
    return f"{sharing.device.name} is {show_bytes(-sharing.spare_bytes)} too small for all of them."


def held(instance: Instance) -> float:
    """Requests of the tenant's context that its cache holds."""
    return room_of(instance.prediction, instance.tenant.context, instance.tenant.concurrency).expected
