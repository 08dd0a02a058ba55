"""From what a person gives (a model, a GPU, flags) to a plan."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvroom.devices.catalogue import find_device
from kvroom.devices.device import Machine
from kvroom.devices.names import parse_gpu, parse_memory
from kvroom.errors import UsageError
from kvroom.ledger.predict import Setup, predict
from kvroom.models.shape import ModelShape
from kvroom.plans.model import find_model
from kvroom.plans.plan import Plan
from kvroom.plans.release import choose_release
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.parse import parse_serve_args


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for beside vLLM's own flags, as texts."""

    gpu: str | None = None
    gpu_memory: str | None = None
    free_memory: str | None = None
    vllm: str | None = None
    assume_quantization: str | None = None
    measured: Mapping[str, int] = field(default_factory=dict)
    """Ledger entries (and ``total``, the card's) that a log printed, in bytes."""
    measured_with: str | None = None
    """Flags under which ``available`` was logged, where they differ from the launch's."""
    offline: bool = False
    without: tuple[str, ...] = ()


def plan(
    model: str,
    *,
    gpu: str | None = None,
    gpu_memory: str | None = None,
    free_memory: str | None = None,
    vllm: str | None = None,
    assume_quantization: str | None = None,
    measured: Mapping[str, int] | None = None,
    measured_with: str | None = None,
    offline: bool = False,
    without: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **flags: Any,
) -> Plan:
    """The plan of ``vllm serve MODEL`` with ``flags`` under vLLM's names, e.g. ``max_model_len=32768``.

    ``gpu`` is a name with an optional count (``"2x RTX 3090"``), else the local GPUs are used.
    ``gpu_memory`` and ``free_memory`` are sizes (``"24GiB"``); ``vllm`` a version; ``measured`` ledger
    entries in bytes read from a log of this machine (``measured_with`` the flags of that launch, where they
    differ). Raises a KvroomError for input that is wrong;
    a launch that vLLM would refuse is a verdict.
    """
    request = Request(
        gpu,
        gpu_memory,
        free_memory,
        vllm,
        assume_quantization,
        measured or {},
        measured_with,
        offline,
        tuple(without),
    )
    return plan_tokens([model, *flag_tokens(flags)], env or {}, request)


def flag_tokens(flags: Mapping[str, Any]) -> list[str]:
    """Command-line tokens for Python keyword arguments: ``True`` is a bare flag, ``False`` its negation."""
    tokens: list[str] = []
    for name, value in flags.items():
        option = "--" + name.replace("_", "-")
        if value is None:
            continue
        if value is True:
            tokens.append(option)
        elif value is False:
            tokens.append("--no-" + name.replace("_", "-"))
        elif isinstance(value, Mapping):
            tokens += [option, json.dumps(dict(value))]
        elif isinstance(value, list | tuple):
            tokens += [option, *map(str, value)]
        else:
            tokens += [option, str(value)]
    return tokens


def plan_tokens(
    tokens: Sequence[str],
    env: Mapping[str, str],
    request: Request,
    *,
    version_hint: str | None = None,
    source: str | None = None,
    line: int | None = None,
    count_hint: int | None = None,
    notes: tuple[str, ...] = (),
) -> Plan:
    """The plan of the arguments after ``vllm serve``, with environment variables ``env``."""
    release, said = choose_release(request.vllm, version_hint)
    notes += said
    args = parse_serve_args(tokens, env, release=release, read_file=_read_text)
    if not args.model:
        raise UsageError("No model is named.", "Give it as the first argument or with --model.")
    shape, said = find_model(
        args.model,
        offline=request.offline,
        revision=args.revision,
        overrides=args.hf_overrides,
        assumed=request.assume_quantization,
        asked_length=args.max_model_len,
    )
    draft, also = _draft(args, request)
    notes += said + also
    notes += tuple(f"{shape.name}: {assumption}" for assumption in shape.assumptions)
    machine, said = _machine(request, args, count_hint)
    logged_args = None
    if request.measured_with is not None:
        words = [*tokens, *split_words(request.measured_with)]
        logged_args = parse_serve_args(words, env, release=release, read_file=_read_text)
    setup = Setup(
        shape,
        args,
        machine,
        release,
        draft,
        {name: size for name, size in request.measured.items() if name != "total"},
        logged_args,
        frozenset(request.without),
    )
    return Plan(predict(setup), tuple(tokens), notes + said, source, line)


def split_words(text: str) -> list[str]:
    """``text`` split as a shell would; UsageError for an unclosed quote."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"'{text[:60]}' cannot be split into words: {error}.") from None


def _read_text(path: str) -> str:
    return Path(path).read_text("utf-8")


def _draft(args: EngineArgs, request: Request) -> tuple[ModelShape | None, tuple[str, ...]]:
    config = args.speculative_config or {}
    name = config.get("model")
    if not isinstance(name, str) or name == args.model:
        return None, ()
    revision = config.get("revision")
    return find_model(name, offline=request.offline, revision=str(revision) if revision else None)


def _machine(request: Request, args: EngineArgs, count_hint: int | None) -> tuple[Machine, tuple[str, ...]]:
    world = args.tensor_parallel_size * args.pipeline_parallel_size
    world *= args.data_parallel_size * args.prefill_context_parallel_size
    free = parse_memory(request.free_memory) if request.free_memory else None
    if request.gpu is None:
        if request.gpu_memory is not None:
            raise UsageError("--gpu-memory needs --gpu.", "Name the card, e.g. --gpu 'RTX 4090'.")
        from kvroom.devices.probe import local_machine

        machine = local_machine()
        return (replace(machine, free_bytes=free) if free else machine), ()
    name, count = parse_gpu(request.gpu)
    device = find_device(name, parse_memory(request.gpu_memory) if request.gpu_memory else None)
    notes: tuple[str, ...] = (device.note,) if device.note else ()
    total = request.measured.get("total")
    if total is not None:
        device = replace(device, total_bytes=total, total_low=total, total_high=total, basis="measured")
    if count > 1:
        return Machine(device, count, free), notes
    if count_hint is not None and count_hint >= world:
        return Machine(device, count_hint, free), notes
    if world > 1:
        notes += (f"{world} x {device.name} are assumed, as the launch needs.",)
    return Machine(device, world, free), notes
