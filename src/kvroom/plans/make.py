"""From what a person gives (a model, a GPU, flags) to a plan."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvroom.devices.catalogue import find_device
from kvroom.devices.device import Machine
from kvroom.devices.names import MOST_GPUS, parse_gpu, parse_memory
from kvroom.errors import UsageError, short
from kvroom.files import read_limited, reason
from kvroom.ledger.predict import Setup, predict
from kvroom.models.shape import ModelShape
from kvroom.plans.model import find_model
from kvroom.plans.plan import Plan
from kvroom.plans.release import choose_release
from kvroom.plans.request import Request, checked_env
from kvroom.redaction import UNSEEN
from kvroom.units import show_bytes
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.config_file import LONGEST
from kvroom.vllm.parse import parse_serve_args


def plan(
    model: str | os.PathLike[str],
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
    learned: bool = True,
    env: Mapping[str, str] | None = None,
    **flags: Any,
) -> Plan:
    """The plan of ``vllm serve MODEL`` with ``flags`` under vLLM's names, e.g. ``max_model_len=32768``.

    ``gpu`` is a name with an optional count (``"2x RTX 3090"``), else the local GPUs are used.
    ``gpu_memory`` and ``free_memory`` are sizes (``"24GiB"``); ``vllm`` a version; ``measured`` ledger
    entries in bytes read from a log of this machine (``measured_with`` the flags of that launch, where they
    differ). Without ``measured``, what ``kvroom learn`` kept of such a machine is used, unless ``learned`` is
    False. Raises a KvroomError for input that is wrong;
    a launch that vLLM would refuse is a verdict.
    """
    request = Request(
        gpu,
        gpu_memory,
        free_memory,
        vllm,
        assume_quantization,
        measured,
        measured_with,
        bool(offline),
        without,
        bool(learned),
    )
    name = os.fspath(model) if isinstance(model, os.PathLike) else model
    if not isinstance(name, str):
        raise UsageError(
            f"The model is a {type(model).__name__}, not a text.", "Give a model id, a folder or a config.json."
        )
    return plan_tokens([name, *flag_tokens(flags)], checked_env(env), request)


def flag_tokens(flags: Mapping[str, Any]) -> list[str]:
    """Command-line tokens for Python keyword arguments: ``True`` is a bare flag, ``False`` its negation.

    Raises UsageError for a value that cannot be written on a command line.
    """
    tokens: list[str] = []
    for name, value in flags.items():
        option = "--" + name.replace("_", "-")
        if value is None:
            continue
        if value is True:
            tokens.append(option)
        elif value is False:
            tokens.append("--no-" + name.replace("_", "-"))
        elif isinstance(value, list | tuple):
            tokens += [option, *(_written(name, item) for item in value)]
        else:
            tokens += [option, _written(name, value)]
    return tokens


def _written(name: str, value: object) -> str:
    try:
        if isinstance(value, Mapping):
            return json.dumps(dict(value))
        if isinstance(value, str | int | float):
            return str(value)
    except (TypeError, ValueError, RecursionError):  # no JSON, or a number of thousands of digits
        pass
    raise UsageError(
        f"{name} is a {type(value).__name__} that cannot be written on a command line.",
        "Give a text, a number, a list or a dictionary of such.",
    )


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
    unseen = UNSEEN.search(args.model)
    if unseen:
        raise UsageError(
            f"The model's name holds a character that cannot be seen (U+{ord(unseen.group()):04X}).",
            "Type the name instead of copying it.",
        )
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
    if request.assume_quantization:
        notes += (f"the command names {args.model}: put a checkpoint stored as {request.assume_quantization} there.",)
    notes += tuple(f"{shape.name}: {assumption}" for assumption in shape.assumptions)
    machine, said = _machine(request, args, count_hint)
    notes += said
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
        {name: size for name, size in (request.measured or {}).items() if name != "total"},
        logged_args=logged_args,
        without=frozenset(request.without),
    )
    if request.learned and not request.measured and request.measured_with is None:
        from kvroom.learned.apply import with_store

        setup, said = with_store(setup)
        notes += said
    return Plan(predict(setup), tuple(tokens), notes, source, line)


def split_words(text: str) -> list[str]:
    """``text`` split as a shell would; UsageError for an unclosed quote."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"'{text[:60]}' cannot be split into words: {error}.") from None


def _read_text(path: str) -> str:
    """The text of a ``--config`` file; UsageError where it cannot be had."""
    try:
        return read_limited(Path(path).expanduser(), LONGEST).decode("utf-8-sig")
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"--config {short(path)} cannot be read: {reason(error)}.",
            "Check the path, which is looked for here, or write the file's settings as flags.",
        ) from None


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
    if world > MOST_GPUS:
        raise UsageError(
            f"The launch needs {world:,} GPUs.",
            f"The sizes of all kinds of parallelism multiply; at most {MOST_GPUS:,}.",
        )
    machine, notes = _gpus(request, world, count_hint)
    total = (request.measured or {}).get("total")
    if total is not None:
        device = replace(machine.device, total_bytes=total, total_low=total, total_high=total, basis="measured")
        machine = replace(machine, device=device)
    if request.free_memory is not None:
        machine = replace(machine, free_bytes=parse_memory(request.free_memory))
    _check_sizes(request, machine)
    return machine, notes


def _gpus(request: Request, world: int, count_hint: int | None) -> tuple[Machine, tuple[str, ...]]:
    """The GPUs that are named, else those that are here; as many as the launch needs where nobody says."""
    if request.gpu is None:
        if request.gpu_memory is not None:
            raise UsageError("--gpu-memory needs --gpu.", "Name the card, e.g. --gpu 'RTX 4090'.")
        from kvroom.devices.probe import local_machine

        return local_machine(), ()
    name, count = parse_gpu(request.gpu)
    device = find_device(name, request.card_bytes)
    notes: tuple[str, ...] = (device.note,) if device.note else ()
    if count > 1:
        return Machine(device, count), notes
    if count_hint is not None and count_hint >= world:
        return Machine(device, count_hint), notes
    if world > 1:
        notes += (f"{world} x {device.name} are assumed, as the launch needs.",)
    return Machine(device, world), notes


def _check_sizes(request: Request, machine: Machine) -> None:
    """Refuse what would be larger than the card that holds it."""
    card = machine.device
    most = max(card.total_high, card.total_bytes)
    if machine.free_bytes is not None and machine.free_bytes > most:
        raise UsageError(
            f"--free-memory {show_bytes(machine.free_bytes)} is more than {card.name} has ({show_bytes(most)}).",
            "Say what one card has free; --gpu-memory gives it another total.",
        )
    for name, size in (request.measured or {}).items():
        if size > most:
            raise UsageError(
                f"--measured {name}={show_bytes(size)} is more than {card.name} has ({show_bytes(most)}).",
                "Give the figure of one GPU, as its log has it.",
            )
