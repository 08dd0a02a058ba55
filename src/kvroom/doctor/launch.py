"""The launch behind a log, as the rules can predict it: words, environment, release, card and model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvroom.devices.catalogue import find_by_driver_name, find_device, parts
from kvroom.devices.names import parse_gpu
from kvroom.doctor.ticket import Ticket
from kvroom.errors import KvroomError, UnknownModel, UsageError
from kvroom.launches.read import read_command, read_words
from kvroom.ledger.verdict import Status
from kvroom.logs.reading import Reading
from kvroom.logs.stages import rank
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request
from kvroom.units import GIB, show_bytes
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release, parse_release
from kvroom.vllm.rules import NEWEST

_NEAR = 0.012
"""How far two totals of one card may lie apart: drivers keep more or less of it."""
_PLACEHOLDER = re.compile(r"<[^<>]{1,60}>|\[[A-Z_]{2,40}\]|\.\.\.|…")
"""What people write in place of a value that they keep to themselves."""
_REMARK = re.compile(r"\s*[(\[,;].*$|\s+-class\b.*$")
_ENTRIES = ("weights", "activation", "other", "available")


@dataclass(frozen=True, slots=True)
class Known:
    """The launch of a log as far as it is known."""

    words: tuple[str, ...]
    """After ``vllm serve``."""
    env: Mapping[str, str]
    release: Release | None
    predicted: Plan | None = None
    """What the rules say without the log's figures; None where the model or the card is not known."""
    priced: Plan | None = None
    """The same with the figures that the log measured."""
    notes: tuple[str, ...] = field(default=())

    def settings(self) -> dict[str, object]:
        """What the command itself sets, by vLLM's names."""
        try:
            args = parse_serve_args(self.words, self.env, release=self.release or NEWEST)
        except KvroomError:
            return {}
        return {name: getattr(args, name) for name in args.given if hasattr(args, name)}


def release_of(reading: Reading, ticket: Ticket) -> Release | None:
    """The release that was said, else the one that the log prints; None for neither, or a build without a number."""
    if ticket.vllm is not None:
        return parse_release(ticket.vllm)
    try:
        release = parse_release(reading.version) if reading.version else None
    except UsageError:
        return None
    return None if release is not None and release < Release(0, 2, 0) else release  # 0.1.dev is a source build


def known_launch(reading: Reading, ticket: Ticket) -> Known:
    """The launch of ``reading`` with its prediction where one can be made; notes say where it cannot."""
    notes: list[str] = []
    words, env, hint = _words(reading, ticket, notes)
    release = release_of(reading, ticket)
    if release is None and hint:
        release = parse_release(hint)
    env = {**env, **ticket.env}
    gpu, memory = _card(reading, ticket, notes)
    if gpu is None:
        notes.append("Neither the log nor the command names the card: give --gpu for predicted numbers.")
    if not words:
        notes.append("Neither the log nor a command names the model: give --model or --command for predicted numbers.")
    if gpu is None or not words:
        return Known(words, env, release, notes=tuple(notes))
    version = str(release) if release else None
    if release is None:
        notes.append("The log names no release: the newest known rules are used; --vllm says another.")
    problem = ""
    for candidate in _candidates(words, ticket, release):
        request = Request(gpu=gpu, gpu_memory=memory, vllm=version, offline=ticket.offline)
        try:
            predicted = plan_tokens(candidate, env, request)
            priced = _priced(predicted, candidate, env, request, reading)
        except UnknownModel as error:
            problem = problem or error.problem
            continue
        except KvroomError as error:
            problem = error.problem
            break
        notes += predicted.notes
        if priced is not None and _went_past(priced, reading):
            notes.append(
                f"The rules stop this launch at {priced.prediction.verdict.stage}, which the log went past: the model, "
                "the card or the flags are others than said, so nothing is priced."
            )
            priced = None
        return Known(tuple(candidate), env, release, predicted, priced, tuple(notes))
    notes.append(f"No prediction: {problem}")
    return Known(words, env, release, notes=tuple(notes))


def _went_past(plan: Plan, reading: Reading) -> bool:
    """Whether the log shows a later stage than the one at which the rules say that the launch must stop."""
    verdict = plan.prediction.verdict
    return verdict.status is Status.FAILS and 0 <= rank(verdict.stage or "") < rank(reading.stage)


def _priced(
    predicted: Plan, words: Sequence[str], env: Mapping[str, str], request: Request, reading: Reading
) -> Plan | None:
    """The plan moved by what the log measured; the plain one where it measured nothing."""
    measured = {name: size for name in _ENTRIES if (size := reading.size(name)) is not None}
    counted = reading.size("graph_estimate")
    if counted is not None and predicted.prediction.ledger and predicted.prediction.ledger.cuda_graphs.expected:
        measured["cuda_graphs"] = counted
    total = reading.measured.get("total")
    if total is not None and total.value > 0:
        measured["total"] = total.value
    measured = {name: size for name, size in measured.items() if size >= 0 or name == "available"}
    if reading.settings.get("kv_cache_memory_bytes"):
        measured.pop("available", None)
    if not measured:
        return predicted
    free = reading.free_bytes
    asked = Request(
        gpu=request.gpu,
        gpu_memory=request.gpu_memory,
        vllm=request.vllm,
        measured=measured,
        free_memory=f"{free / GIB:.4f}GiB" if free and (total is None or free <= total.value) else None,
        offline=request.offline,
    )
    try:
        plan = plan_tokens(words, env, asked)
        return _counted(plan, words, env, asked, reading)
    except KvroomError:
        return predicted


def _counted(plan: Plan, words: Sequence[str], env: Mapping[str, str], asked: Request, reading: Reading) -> Plan:
    """The plan with the pool that the log counted, where its blocks say something else than its bytes.

    A rank with less, or a size printed with few digits, shows in the count alone.
    """
    layout, pool = plan.prediction.layout, plan.prediction.pool
    blocks = reading.pool.num_blocks
    if blocks is None and reading.facts.first("err_tokens", "err_tokens_short") and reading.pool.tokens and layout:
        blocks = reading.pool.tokens // layout.block_size
    if not blocks or layout is None or pool is None or not layout.bytes_per_block or blocks == pool.num_blocks:
        return plan
    if "num_gpu_blocks_override" in reading.settings or plan.prediction.setup.args.num_gpu_blocks_override:
        return plan
    measured = {**(asked.measured or {}), "available": blocks * layout.bytes_per_block}
    return plan_tokens(words, env, replace(asked, measured=measured))


def _words(reading: Reading, ticket: Ticket, notes: list[str]) -> tuple[tuple[str, ...], dict[str, str], str | None]:
    """The words of the launch, its environment, and the release that an image tag names."""
    if ticket.command is None:
        words = list(reading.words)
        if ticket.model and not words:
            words = [ticket.model]
        return tuple(words), {}, None
    for attempt in _attempts(ticket):
        try:
            launches = read_command(attempt) if isinstance(attempt, str) else read_words(attempt)
        except KvroomError:
            continue
        if launches:
            launch = launches[-1]
            return launch.tokens, dict(launch.env), launch.version_hint
    notes.append("The command is no launch of vLLM that can be read; the log's own settings are used.")
    return (tuple(reading.words) or ((ticket.model,) if ticket.model else ())), {}, None


def _attempts(ticket: Ticket) -> Iterator[str | list[str]]:
    """The command as given, then what can be saved of one with placeholders or without a program or a model."""
    command = ticket.command
    assert command is not None
    try:
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    except ValueError:
        words = []
    if not any(_PLACEHOLDER.search(word) for word in words):
        yield command if isinstance(command, str) else words
    words = _filled(words)
    yield words
    flags = [place for place, word in enumerate(words) if word.startswith("-")]
    rest = words[flags[0] :] if flags else []
    named = any(word == "--model" or word.startswith("--model=") for word in rest)
    if named:
        yield ["vllm", "serve", *rest]
    elif ticket.model:
        yield ["vllm", "serve", ticket.model, *rest]


def _filled(words: Sequence[str]) -> list[str]:
    """``words`` without placeholders and the flags that they are the value of; a folder in front of a name goes."""
    kept: list[str] = []
    for word in words:
        if not _PLACEHOLDER.search(word):
            kept.append(word)
            continue
        name = word.rpartition("/")[2]
        if "/" in word and name and not _PLACEHOLDER.search(name):
            flag, equals, _ = word.partition("=")
            kept.append(f"{flag}={name}" if equals and flag.startswith("-") else name)
        elif kept and kept[-1].startswith("--") and "=" not in kept[-1] and not word.startswith("-"):
            kept.pop()
    return kept


def _candidates(words: Sequence[str], ticket: Ticket, release: Release | None) -> Iterator[list[str]]:
    """The words with the model under each of the names that it may be known by."""
    try:
        args = parse_serve_args(words, {}, release=release or NEWEST)
    except KvroomError:
        args = None
    unknown = set(args.unknown) if args is not None and not ticket.command else set()
    kept = [word for word in words if word not in unknown]
    model = args.model if args is not None else ""
    names = [*(_spoken(ticket.model) if ticket.model else ()), model, *_shorter(model)]
    for name in dict.fromkeys(name for name in names if name):
        if model and model in kept:
            yield [name if word == model else word for word in kept]
        elif model:
            yield [f"--model={name}" if word.startswith("--model=") else word for word in kept]
        else:
            yield [name, *kept]


def _spoken(name: str) -> Iterator[str]:
    """A model as people name it: with a remark behind it, or its quantisation after a blank."""
    yield name
    bare = _REMARK.sub("", name).strip()
    yield bare
    yield "-".join(bare.split())
    yield bare.split()[0] if bare.split() else ""


def _shorter(model: str) -> Iterator[str]:
    """Names that a path to a model may stand for: of the hub's cache, of ModelScope, its last folder."""
    for part in reversed(model.replace("\\", "/").split("/")):
        if part.startswith("models--"):
            yield part.removeprefix("models--").replace("--", "/", 1)
            return
    last = model.rstrip("/").rpartition("/")[2].replace("___", ".")
    if last != model:
        yield last


def _card(reading: Reading, ticket: Ticket, notes: list[str]) -> tuple[str | None, str | None]:
    """The card with its count, and its memory where the log knows it; None where neither is known."""
    count = f"{reading.gpus}x " if reading.gpus and reading.gpus > 1 else ""
    total = reading.total_bytes
    if ticket.gpu is not None:
        for name in (ticket.gpu, _REMARK.sub("", ticket.gpu)):
            try:
                find_device(parse_gpu(name)[0])
            except KvroomError as error:
                problem = error.problem
            else:
                return name, ticket.gpu_memory or (f"{total / GIB:.3f}GiB" if total else None)
        notes.append(problem)
    if reading.device is not None:
        device = find_by_driver_name(reading.device, total)
        if device is not None and device.id:
            return f"{count}{device.name}", ticket.gpu_memory
    if total is None:
        return None, None
    near = [part for part in parts() if abs(part.device.total_bytes - total) <= _NEAR * total]
    near.sort(key=lambda part: (abs(part.device.total_bytes - total), not part.default))
    if not near:
        return None, None
    others = ", ".join(part.label for part in near[1:4])
    notes.append(
        f"The log names no card; its {show_bytes(total)} are those of {near[0].label}"
        + (f" (also of {others})." if others else ".")
    )
    return f"{count}{near[0].device.name}", None
