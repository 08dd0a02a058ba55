"""The words of the launch behind a log, and the names that its model may be known by."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from kvroom.doctor.ticket import Ticket
from kvroom.errors import KvroomError
from kvroom.launches.read import read_command, read_words
from kvroom.logs.reading import Reading
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release
from kvroom.vllm.rules import NEWEST

_PLACEHOLDER = re.compile(r"<[^<>]{1,60}>|\[[A-Z_]{2,40}\]|\.\.\.|…")
"""What people write in place of a value that they keep to themselves."""
_REMARK = re.compile(r"\s*[(\[,;].*$|\s+-class\b.*$")


def launch_words(
    reading: Reading, ticket: Ticket, notes: list[str]
) -> tuple[tuple[str, ...], dict[str, str], str | None]:
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


def candidates(words: Sequence[str], ticket: Ticket, release: Release | None) -> Iterator[list[str]]:
    """The words with the model under each of the names that it may be known by."""
    try:
        args = parse_serve_args(words, {}, release=release or NEWEST)
    except KvroomError:
        args = None
    # where nobody says the release, a flag that the newest lacks shows only that it is another
    foreign = release is None or not ticket.command
    unknown = set(args.unknown) if args is not None and foreign else set()
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
    bare = without_remark(name)
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


def without_remark(name: str) -> str:
    """A name as people write it, without what they add behind it.

    >>> without_remark("RTX 4090 (24 GB)")
    'RTX 4090'
    """
    return _REMARK.sub("", name).strip()
