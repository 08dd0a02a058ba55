"""What was asked to be compared: files with logs, commands, or one file with two starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from kvroom.compare.compare import compare
from kvroom.compare.comparison import Comparison
from kvroom.compare.side import Side
from kvroom.compare.sides import side_of_command, side_of_log
from kvroom.doctor.diagnose import open_log
from kvroom.doctor.ticket import Ticket
from kvroom.errors import KvroomError, UsageError, short
from kvroom.files import read_limited
from kvroom.launches.launch import Launch
from kvroom.launches.read import read_command, read_words
from kvroom.logs.read import Log, read_log
from kvroom.logs.reading import Reading
from kvroom.plans.request import Request

_USAGE = "Give two logs, or a log and a command: kvroom compare good.log -- vllm serve ..."
_WANTED = "Give what `vllm serve` printed; a command is given in quotes or after `--`."

_VERDICTS = ("concurrency", "err_bytes", "err_tokens", "err_none")
"""Messages that end the sizing of the pool; a start prints one of them."""
_LONGEST = 4_000_000
"""Bytes of an excerpt that is split."""


@dataclass(frozen=True, slots=True)
class _Given:
    """One argument as read: a start in a log, or a launch."""

    label: str
    reading: Reading | None = None
    launch: Launch | None = None


def compared(
    words: Sequence[str], *, gpu: str | None = None, model: str | None = None, offline: bool = False
) -> Comparison:
    """The comparison of the arguments of ``kvroom compare``.

    ``gpu`` and ``model`` are for logs that do not say. Raises a KvroomError for what cannot be read.
    """
    good, bad = _pair(list(words))
    ticket = Ticket(model=model, gpu=gpu, offline=offline)
    request = Request(gpu=gpu, offline=offline)
    if good.launch is not None and bad.reading is not None:
        right = _of_log(bad, ticket)
        return compare(_of_command(good, request, right), right)
    if bad.launch is not None:
        left = _of_log(good, ticket) if good.reading is not None else _of_command(good, request, None)
        return compare(left, _of_command(bad, request, left))
    left, right = _of_log(good, ticket), _of_log(bad, ticket)
    return compare(_on_card_of(left, right, ticket), _on_card_of(right, left, ticket))


def _of_log(given: _Given, ticket: Ticket) -> Side:
    assert given.reading is not None
    return side_of_log(given.reading, given.label, ticket)


def _on_card_of(side: Side, other: Side, ticket: Ticket) -> Side:
    """``side`` on the card of ``other`` where its own log tells nothing of one."""
    reading = side.reading
    if side.prediction is not None or other.prediction is None or reading is None or ticket.gpu is not None:
        return side
    if reading.device is not None or reading.total_bytes is not None:
        return side
    return side_of_log(reading, side.label, ticket, card=other.prediction.setup.machine.device)


def _of_command(given: _Given, request: Request, other: Side | None) -> Side:
    assert given.launch is not None
    return side_of_command(given.launch, given.label, request, other)


def _pair(words: list[str]) -> tuple[_Given, _Given]:
    if not words:
        raise UsageError("Nothing to compare.", _USAGE)
    if len(words) == 1:
        log, name = _log(words[0]), _named(words[0])
        if len(log.readings) > 1:
            last, before = log.readings[:2]
            return _Given(f"{name} from line {before.first_line}", before), _Given(
                f"{name} from line {last.first_line}", last
            )
        parts = _excerpts(words[0], log.readings[0])
        if parts is None:
            raise UsageError(f"{name} holds one start of vLLM, and two are compared.", _USAGE)
        return _Given(f"{name}, first part", parts[0]), _Given(f"{name}, second part", parts[1])
    first = _given(words[0])
    second = _given(words[1]) if len(words) == 2 else _Given("the command", launch=_one(read_words(words[1:])))
    return first, second


def _excerpts(name: str, whole: Reading) -> tuple[Reading, Reading] | None:
    """The two runs of an excerpt without banners: the first ends where it says how the pool came out.

    The lines of the second are counted from its own first.
    """
    ends = [fact.line for fact in whole.facts.all(*_VERDICTS)]
    if whole.version is not None or len(ends) < 2 or name == "-":
        return None
    lines = read_limited(Path(name), _LONGEST).splitlines(keepends=True)
    parts = [read_log(BytesIO(b"".join(part))) for part in (lines[: ends[0]], lines[ends[0] :])]
    if any(part.empty or len(part.readings) != 1 for part in parts):
        return None
    return parts[0].readings[0], parts[1].readings[0]


def _given(word: str) -> _Given:
    """A file with a log, else a command in one word."""
    if word != "-" and not _exists(word) and any(letter.isspace() for letter in word):
        try:
            return _Given("the command", launch=_one(read_command(word)))
        except KvroomError as error:
            if "starts no vLLM server" not in error.problem:
                raise
            raise UsageError(f"'{short(word)}' is neither a file nor a command that starts vLLM.", _USAGE) from None
    return _Given(_named(word), _log(word).readings[0])


def _one(launches: list[Launch]) -> Launch:
    if len(launches) != 1:
        raise UsageError(f"The command starts {len(launches)} servers, and one is compared.", _USAGE)
    return launches[0]


def _log(name: str) -> Log:
    """The log in a file or (``-``) the standard input; UsageError where there is none."""
    log = open_log(sys.stdin.buffer if name == "-" else Path(name))
    if log.size == 0:
        raise UsageError(f"{_named(name)} is empty.", _WANTED)
    if log.empty or not log.readings:
        raise UsageError(f"{_named(name)} is no log of vLLM.", _WANTED)
    return log


def _named(name: str) -> str:
    return "The standard input" if name == "-" else short(name)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long for a path
        return False
