"""From what people have (a command, a docker line, a script, a manifest) to plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace

from kvroom.devices.catalogue import find_device
from kvroom.devices.names import parse_gpu
from kvroom.errors import DeviceError, KvroomError, UnknownModel, UsageError
from kvroom.launches.launch import Found, Launch, Unanswered, Unread
from kvroom.launches.read import read_command, read_words
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request, checked_env
from kvroom.vllm.releases import parse_release

Item = Plan | Unanswered | Unread
"""What is said of one launch: a plan, or why there is none."""


def check(command: str, *, env: Mapping[str, str] | None = None, **request: object) -> list[Plan]:
    """The plans of every vLLM launch in ``command``: a line or a whole shell script.

    ``request`` takes the keywords of ``kvroom.plan`` that are not vLLM's: ``gpu``, ``vllm``, ``offline``, ...
    What ``kvroom learn`` kept is used unless ``learned`` is False. Raises a KvroomError for text that cannot be read.
    """
    if not isinstance(command, str):
        raise UsageError(f"The command is a {type(command).__name__}, not a text.", "Give a line or a script.")
    unknown = request.keys() - {each.name for each in fields(Request)}
    if unknown:
        raise UsageError(f"check has no argument {min(unknown)}.", "vLLM's flags belong into the command.")
    return check_text(command, checked_env(env), Request(**{"learned": True, **request}))  # type: ignore[arg-type]


def check_text(text: str, env: Mapping[str, str], request: Request, source: str = "") -> list[Plan]:
    """The plans of the launches in ``text``, which came from the file ``source``."""
    with _named("" if source == "-" else source):
        launches = read_command(text, source=source)
    return [_plan(launch, env, request) for launch in launches]


def check_words(words: Sequence[str], env: Mapping[str, str], request: Request) -> list[Plan]:
    """The plans of a command that a shell has already split into words."""
    return [_plan(launch, env, request) for launch in read_words(words)]


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Errors from here on say that they are about ``place``, so that one of many files can be told."""
    try:
        yield
    except KvroomError as error:
        if not place or error.problem.startswith(place):
            raise
        raise type(error)(f"{place}: {error.problem}", error.cure) from error


def check_found(
    found: Iterable[Found], env: Mapping[str, str], request: Request, models: Mapping[str, str] | None = None
) -> list[Item]:
    """The plans of what manifests hold; of a launch that cannot be planned, why and what to do.

    ``models`` names the checkpoint behind a path or a storage address, under ``""`` that behind any other.
    A launch whose nodes may have several cards gets a plan for each; what stands in many files is planned once.
    """
    _check_request(request)
    known: dict[object, Item] = {}
    items: list[Item] = []
    for each in found:
        if not isinstance(each, Launch):
            items.append(each)
            continue
        launch = _with_model(each, models or {})
        cards = launch.cards if request.gpu is None and launch.cards else (request.gpu,)
        for card in cards:
            around = (launch.pod.cluster, launch.pod.part) if launch.pod is not None else None
            env_items, hints = tuple(launch.env.items()), (launch.version_hint, launch.gpu_hint, around)
            key = (launch.tokens, env_items, hints, launch.notes, card)
            if key not in known:
                known[key] = _plan_or_reason(launch, env, request, card)
            items.append(_at(known[key], launch))
    return items


def _check_request(request: Request) -> None:
    """Raise KvroomError for a card or release that nobody knows, before every launch is said to lack it."""
    if request.gpu is not None:
        find_device(parse_gpu(request.gpu)[0], request.card_bytes)
    if request.vllm is not None:
        parse_release(request.vllm)


def _at(item: Item, launch: Launch) -> Item:
    """``item`` as what is said of ``launch``, which has the same words."""
    if isinstance(item, Plan):
        read = launch if launch.pod is not None else None
        return replace(item, source=launch.source or None, line=launch.line, launch=read)
    if isinstance(item, Unanswered):
        name = launch.pod.kind if launch.pod is not None else item.name
        return replace(item, source=launch.source, line=launch.line, name=name)
    return replace(item, source=launch.source, line=launch.line)


def _plan_or_reason(launch: Launch, env: Mapping[str, str], request: Request, card: str | None) -> Item:
    """The plan of a manifest's launch on ``card``, or what is missing for one."""
    kind = launch.pod.kind if launch.pod is not None else ""
    if card is None and launch.pod is not None and launch.pod.cluster:
        reason = "Neither its node selector nor --gpu names the card."
        return Unanswered(launch.source, launch.line, kind, reason, "Add --gpu, e.g. --gpu H100.")
    if launch.pod is not None and launch.pod.part and request.gpu_memory is None:
        cure = "Give the card and the size of its part with --gpu and --gpu-memory."
        return Unanswered(launch.source, launch.line, kind, launch.pod.part, cure)
    try:
        return _plan(launch, env, replace(request, gpu=card))
    except UnknownModel as error:
        cure = error.cure
        if any(
            _is_place(token.removeprefix("--model=")) and _names_model(launch.tokens, at)
            for at, token in enumerate(launch.tokens)
        ):
            cure = "Name the checkpoint that lies there: --assume-model MODEL, or PATH=MODEL for one of several."
        return Unanswered(launch.source, launch.line, kind, _unnamed(error, launch), cure)
    except DeviceError as error:
        return Unanswered(launch.source, launch.line, kind, _unnamed(error, launch), error.cure)
    except KvroomError as error:
        return Unread(launch.source, launch.line, _unnamed(error, launch), error.cure)


def _unnamed(error: KvroomError, launch: Launch) -> str:
    return error.problem.removeprefix(f"{launch.source}, line {launch.line}: ")


def _with_model(launch: Launch, models: Mapping[str, str]) -> Launch:
    """``launch`` with the checkpoint that somebody named for its model; any name holds for what is no hub id."""
    for at, token in enumerate(launch.tokens):
        option, equals, value = token.partition("=")
        attached = bool(equals) and option.startswith("--")
        text = value if attached else token
        name = models.get(text)
        if name is None and "" in models and _is_place(text) and _names_model(launch.tokens, at):
            name = models[""]
        if name is not None:
            words = (*launch.tokens[:at], f"{option}={name}" if attached else name, *launch.tokens[at + 1 :])
            note = f"{text} is taken to hold {name}, as --assume-model says."
            return replace(launch, tokens=words, notes=(*launch.notes, note))
    return launch


def _is_place(text: str) -> bool:
    return text.startswith(("/", "./", "~")) or "://" in text


def _names_model(tokens: Sequence[str], at: int) -> bool:
    """Whether the word at ``at`` is the model: the first word, or what follows ``--model``."""
    if tokens[at].startswith("--"):
        return tokens[at].split("=", 1)[0] == "--model"
    return at == 0 or tokens[at - 1] == "--model"


def _plan(launch: Launch, env: Mapping[str, str], request: Request) -> Plan:
    with _named(f"{launch.source}, line {launch.line}" if launch.source else ""):
        plan = plan_tokens(
            launch.tokens,
            {**launch.env, **env},
            request,
            version_hint=launch.version_hint,
            source=launch.source or None,
            line=launch.line,
            count_hint=launch.gpu_hint,
            notes=launch.notes,
        )
        return replace(plan, launch=launch) if launch.pod is not None else plan
