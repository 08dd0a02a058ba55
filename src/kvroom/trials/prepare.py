"""From what a person asks to a run that can begin: the question, the prediction, and where launches happen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from kvroom.devices.device import Machine
from kvroom.devices.names import parse_gpu
from kvroom.environment.cgroup import read_cgroup
from kvroom.environment.host import read_host
from kvroom.environment.sources import local_inventory, local_sources
from kvroom.errors import DeviceError, UsageError, short
from kvroom.plans.release import choose_release
from kvroom.plans.request import Request
from kvroom.trials.command import Command, asked_version, read
from kvroom.trials.figures import Load
from kvroom.trials.foresee import CardForesight, Foresight, HostForesight
from kvroom.trials.goal import Goal, parse_goal, parse_limit
from kvroom.trials.launch import Launcher
from kvroom.trials.launchers.docker import contain
from kvroom.trials.launchers.local import LocalLauncher
from kvroom.trials.measuring import ServerMeasures
from kvroom.trials.memory import GpuMemory, HostMemory, Memory, NoMemory
from kvroom.trials.platform import Platform
from kvroom.trials.question import Question
from kvroom.trials.search import START_LENGTH
from kvroom.trials.ways import Terms
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.flags import flags_for
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release

_CPU = "cpu"
_KEYS = ("VLLM_API_KEY",)
_MOST_REQUESTS = 100_000
"""At once, or in one measurement."""
_LONGEST = 7 * 86400.0
"""Seconds that a start may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for, as it was written."""

    goal: str = "throughput"
    limits: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    """Flags that stay as the command has them."""
    request: Request = field(default_factory=Request)
    input_len: int | None = None
    output_len: int | None = None
    concurrency: int | None = None
    requests: int | None = None
    repeats: int = 3
    max_trials: int = 16
    timeout: float = 900.0
    launch_all: bool = False
    launcher: str = "local"
    ray_address: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that a run needs beside its store."""

    question: Question
    foresight: Foresight
    launcher: Launcher
    notes: tuple[str, ...]


def prepare(words: Sequence[str], asked: Asked) -> Prepared:
    """The run of the command in ``words``. Raises a KvroomError for what is wrong with it or what was asked."""
    command = read(words)
    goal = parse_goal(asked.goal)
    limits = tuple(parse_limit(text) for text in asked.limits)
    release, notes = _release(command, asked.request.vllm)
    args = parse_serve_args(command.tokens, command.env, release=release)
    _check(args)
    if command.container:
        contain(command.front, command.tokens, release, "kvroom")  # refuses a container that cannot be reached
    request = replace(asked.request, vllm=str(release))
    machine = _machine(request)
    if machine is None:
        request = replace(request, gpu=None)
    here = local_sources()
    host, group = read_host(here), read_cgroup(here)
    total = min([size for size in (host.memory_total_bytes, group.memory_limit_bytes) if size], default=0)

    def free_bytes() -> int:
        return read_host(local_sources()).memory_available_bytes or total

    platform = Platform("gpu") if machine is not None else Platform("cpu", free_bytes())
    terms = Terms(goal, platform, args, frozenset(_name(flag, release) for flag in asked.keep))
    count = args.tensor_parallel_size * args.pipeline_parallel_size * args.data_parallel_size
    question = Question(
        command=command,
        terms=terms,
        limits=limits,
        load=_load(goal, args, asked, platform),
        release=release,
        gpu=request.gpu or (f"{machine.count}x {machine.device.name}" if machine and machine.device.id else None),
        gpus=count if machine is not None else 0,
        repeats=_at_least(asked.repeats, 1, "--repeats"),
        most=_at_least(asked.max_trials, 1, "--max-trials"),
        timeout=_timeout(asked.timeout),
        launch_all=asked.launch_all,
        offline=asked.request.offline,
    )
    foresight: Foresight = (
        CardForesight(request)
        if machine is not None
        else HostForesight(total, free_bytes, release, offline=request.offline)
    )
    measures = ServerMeasures(_key(command, args))

    def memory() -> Memory:
        if machine is not None:
            return GpuMemory(local_inventory)
        return NoMemory() if command.container else HostMemory(total)

    return Prepared(question, foresight, _launcher(asked, question, measures, memory), tuple(notes))


def _release(command: Command, said: str | None) -> tuple[Release, tuple[str, ...]]:
    """The release that was said, else that of the image or of the environment which the command uses."""
    if said is None and command.version_hint is None and command.container is None:
        found = asked_version(command)
        if found is not None:
            release, notes = choose_release(found)
            return release, (f"vLLM {release}, as the command's environment has it.", *notes)
    return choose_release(said, command.version_hint)


def _launcher(asked: Asked, question: Question, measures: ServerMeasures, memory: Callable[[], Memory]) -> Launcher:
    if asked.launcher == "ray":
        if question.command.container:
            raise UsageError("--launcher ray takes no container command.", "Give the command that runs on the nodes.")
        from kvroom.trials.launchers.ray import RayLauncher

        return RayLauncher(measures, gpus=question.gpus, address=asked.ray_address)
    return LocalLauncher(measures, memory)


def _machine(request: Request) -> Machine | None:
    """The GPUs that a launch is on, None where it computes on the CPU (``cpu``, or no GPU is here).

    Raises a KvroomError for a card that nobody knows, and for one here that must be named.
    """
    if request.gpu is not None and request.gpu.strip().lower() == _CPU:
        return None
    if request.gpu is not None:
        from kvroom.devices.catalogue import find_device

        name, count = parse_gpu(request.gpu)
        return Machine(find_device(name), count)
    from kvroom.devices.probe import local_machine

    try:
        return local_machine()
    except DeviceError:
        pass
    try:
        found = local_inventory()
    except DeviceError:
        return None
    raise DeviceError(f"There are GPUs of {found.vendor} here.", f"Name them with --gpu, or say --gpu {_CPU}.")


def _load(goal: Goal, args: EngineArgs, asked: Asked, platform: Platform) -> Load:
    """The load that the goal suggests, within the shortest length that is tried, with what was asked for."""
    for option, value, most in (
        ("--concurrency", asked.concurrency, _MOST_REQUESTS),
        ("--requests", asked.requests, _MOST_REQUESTS),
        ("--input-len", asked.input_len, None),
        ("--output-len", asked.output_len, None),
    ):
        if value is not None:
            _at_least(value, 1, option, most)
    given = args.max_model_len if args.max_model_len and args.max_model_len > 0 else None
    shortest = min(START_LENGTH, goal.length or given or START_LENGTH, given or START_LENGTH)
    usual = {"context": 4, "throughput": 64 if platform.kind == "gpu" else 16}
    concurrency = asked.concurrency or goal.requests or usual[goal.kind]
    load = Load(
        asked.input_len or min(512, shortest // 2),
        asked.output_len or min(128, shortest // 4),
        concurrency,
        asked.requests or 2 * concurrency,
    )
    if load.input_len + load.output_len > shortest:
        raise UsageError(
            f"Requests of {load.input_len} + {load.output_len} tokens do not fit the {shortest:,} tokens of the start.",
            "Give a smaller --input-len or --output-len.",
        )
    return load


def _name(flag: str, release: Release) -> str:
    """The argument that ``flag`` names."""
    table = flags_for(release)
    found = table.find("--" + flag.lstrip("-").replace("_", "-"))
    if found is None:
        raise UsageError(
            f"--keep {short(flag)}: vLLM {release} has no such flag.", "Write it as in --keep max-num-seqs."
        )
    return found[0].name


def _check(args: EngineArgs) -> None:
    if not args.model:
        raise UsageError("The command names no model.", "Give it as the first word after `serve`.")
    if any(word.startswith("--ssl-") for word in args.passed):
        raise UsageError("The server would speak TLS.", "Leave the --ssl flags out: trials run on 127.0.0.1.")
    if args.runner == "pooling":
        raise UsageError("A pooling model has no KV cache to tune.", "Give a model that generates.")


def _key(command: Command, args: EngineArgs) -> str:
    """The key that the command itself sets."""
    words = list(args.passed)
    for word, after in pairwise([*words, ""]):
        if word == "--api-key" or word.startswith("--api-key="):
            return word.partition("=")[2] or after
    return next((command.env[name] for name in _KEYS if name in command.env), "")


def _at_least(value: int, least: int, what: str, most: int | None = None) -> int:
    if value < least:
        raise UsageError(f"{what} {value}: at least {least}.")
    if most is not None and value > most:
        raise UsageError(f"{what} {value}: at most {most:,}.")
    return value


def _timeout(seconds: float) -> float:
    if not (math.isfinite(seconds) and 1 <= seconds <= _LONGEST):
        raise UsageError(f"--start-timeout {seconds:g}: not a time for a start.", "Write seconds, as in 900.")
    return seconds
