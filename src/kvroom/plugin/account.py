"""The start as kvroom reckons it: what it measured, priced, and what to change.

Only offered where kvroom's own arithmetic comes to the engine's numbers: the text of the refusal to the letter, or
the number of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvroom.devices.catalogue import custom_device, find_by_driver_name
from kvroom.devices.device import Device, Machine
from kvroom.errors import KvroomError
from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.setup import Setup
from kvroom.models.shape import ModelShape
from kvroom.models.source import load_model
from kvroom.plugin.start import PARTS, Start
from kvroom.remedies.advise import advise
from kvroom.remedies.remedy import Remedy, changed, room
from kvroom.units import MIB, cdiv
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.flags import flags_for
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release, parse_release
from kvroom.vllm.render import flag_words

_ANY_LENGTH = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
"""The engine let the length pass."""
_ON_CPU = {"max_model_len", "gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_seqs"}
"""Arguments whose effect on a CPU's cache is arithmetic; cards, graphs and kernels are not there."""
_UNKNOWN_TOTAL = 1 << 40


@dataclass(frozen=True, slots=True)
class Account:
    """The priced start."""

    prediction: Prediction
    agrees: bool
    """Whether kvroom comes to the engine's own numbers, so that it can say what a change would do."""
    remedies: tuple[Remedy, ...] = ()
    """What to change, the cheapest first; of a refused start only."""


def account_of(start: Start, refusal: str | None = None) -> Account:
    """The start priced on what it measured; KvroomError for a model or a release without rules."""
    release = parse_release(start.version)
    shape = load_model(start.model, offline=True)
    drafts = start.flags.get("speculative_config", {}).get("model")
    draft = load_model(drafts, offline=True) if isinstance(drafts, str) and drafts != start.model else None
    setup = Setup(shape, _args(start, shape, release), _machine(start), release, draft, _measured(start))
    prediction = predict(setup)
    pool = prediction.pool
    if refusal is None:
        return Account(prediction, pool is not None and pool.num_blocks == start.pool.get("blocks"))
    agrees = pool is not None and pool.error == refusal
    return Account(prediction, agrees, _remedies(prediction, start) if agrees else ())


def _measured(start: Start) -> dict[str, int]:
    sizes = {name: start.sizes[name] for name in PARTS if name in start.sizes}
    return sizes | ({"available": start.pool_bytes} if start.pool_bytes is not None else {})


def _machine(start: Start) -> Machine:
    total, free = start.sizes.get("total"), start.sizes.get("free")
    if start.platform == "cpu":
        n_bytes = total or _UNKNOWN_TOTAL
        device: Device | None = Device("CPU", "CPU", None, n_bytes, n_bytes, n_bytes, "measured")
    else:
        device = find_by_driver_name(start.device, total) if start.device else None
    if device is None:
        device = custom_device(start.device or "GPU", total or _UNKNOWN_TOTAL, start.capability)
    return Machine(device, start.gpus, free)


def _args(start: Start, shape: ModelShape, release: Release) -> EngineArgs:
    """The resolved settings as a command line would have said them."""
    flags: dict[str, Any] = {"model": start.model, **start.flags}
    asked = start.asked_backend.partition(" ")[0]
    if asked and start.platform != "cpu":
        flags["attention_backend"] = asked
    args = _parsed(flags, start, release)
    if start.length_asked or args.max_model_len == -1:
        return args
    short = {name: value for name, value in flags.items() if name != "max_model_len"}
    left_out = _parsed(short, start, release)
    settings = predict(Setup(shape, left_out, _machine(start), release)).settings
    return left_out if settings is not None and settings.max_model_len == args.max_model_len else args


def _parsed(flags: dict[str, Any], start: Start, release: Release) -> EngineArgs:
    table = flags_for(release)
    words = [
        word
        for name, value in flags.items()
        if name in table.by_name and name != "model"
        for word in flag_words(name, value, table)
    ]
    return parse_serve_args([start.model, *words], {**start.env, **_ANY_LENGTH}, release=release)


def _remedies(before: Prediction, start: Start) -> tuple[Remedy, ...]:
    """Each alone lets the launch start; the engine's own figures decide that."""
    found = [*_larger_cache(before, start), *advise(before).remedies]
    if start.platform == "cpu":
        found = [each for each in found if each.flags and {name for name, _ in each.changes} <= _ON_CPU]
    kept: dict[tuple[str, ...], Remedy] = {}
    for each in found:
        if room(each.after) < 2:
            kept.setdefault(each.flags or (each.why,), each)
    return tuple(kept.values())


def _larger_cache(before: Prediction, start: Start) -> list[Remedy]:
    """Where the bytes of the cache were given: as many as one request needs, if that much is free."""
    args, pool = before.setup.args, before.pool
    if args.kv_cache_memory_bytes is None or pool is None:
        return []
    least = cdiv(pool.needed_bytes + pool.bytes_per_block, MIB) * MIB
    free = start.sizes.get("free")
    if least <= args.kv_cache_memory_bytes or (free is not None and least > free - start.sizes.get("weights", 0)):
        return []
    flags = ("--kv-cache-memory-bytes", str(least))
    why = f"one request of {pool.max_model_len:,} tokens needs that much"
    return [changed(before, flags, why, "memory", kv_cache_memory_bytes=least)]


def how_chosen(start: Start, account: Account | None) -> str:
    """How the attention backend came to be the one in use, in one clause; empty where nobody knows."""
    if start.asked_backend:
        return f"asked for: {start.asked_backend}"
    if start.platform == "cpu":
        return "vLLM's only one for this model on CPUs"
    choice = account.prediction.backend if account is not None else None
    if choice is not None and start.backends and choice.name == start.backends[0].removesuffix("_VLLM_V1"):
        return f"vLLM's choice: {choice.how}"
    return "vLLM's own choice"


def settled(account: Account, start: Start) -> Setup:
    """The setup without figures that only this process knows, for what is kept; KvroomError as ``predict``."""
    setup = account.prediction.setup
    if start.platform == "cpu":
        raise KvroomError("The start was on a CPU, and plans are for GPUs.")
    return replace(setup, machine=replace(setup.machine, free_bytes=None))
