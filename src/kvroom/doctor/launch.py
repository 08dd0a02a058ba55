"""The launch behind a log, as the rules can predict it: words, environment, release, card and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvroom.doctor.card import card_of
from kvroom.doctor.command import candidates, launch_words
from kvroom.doctor.measure import moved_by_log
from kvroom.doctor.ticket import Ticket
from kvroom.errors import KvroomError, UnknownModel, UsageError
from kvroom.ledger.verdict import Status
from kvroom.logs.reading import Reading
from kvroom.logs.stages import rank
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release, parse_release
from kvroom.vllm.rules import NEWEST


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


def known_launch(reading: Reading, ticket: Ticket) -> Known:
    """The launch of ``reading`` with its prediction where one can be made; notes say where it cannot."""
    notes: list[str] = []
    words, env, hint = launch_words(reading, ticket, notes)
    release = _release(reading, ticket)
    if release is None and hint:
        release = parse_release(hint)
    env = {**env, **ticket.env}
    if len(words) == 1 and reading.pool.max_model_len:  # a paste that shows no flags, but the length that was asked
        words = (*words, "--max-model-len", str(reading.pool.max_model_len))
    gpu, memory = card_of(reading, ticket, notes)
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
    for candidate in candidates(words, ticket, release):
        request = Request(gpu=gpu, gpu_memory=memory, vllm=version, offline=ticket.offline)
        try:
            predicted = plan_tokens(candidate, env, request)
            priced = moved_by_log(predicted, candidate, env, request, reading)
        except UnknownModel as error:
            problem = problem or error.problem
            continue
        except KvroomError as error:
            problem = error.problem
            break
        notes += predicted.notes
        if not _went_past(priced, reading):
            return Known(tuple(candidate), env, release, predicted, priced, tuple(notes))
        notes.append(
            f"The rules stop this launch at {priced.prediction.verdict.stage}, which the log went past: the model, "
            "the card or the flags are others than said, so nothing is priced."
        )
        return Known(tuple(candidate), env, release, predicted, notes=tuple(notes))
    notes.append(f"No prediction: {problem or _unreadable(words, release)}")
    return Known(words, env, release, notes=tuple(notes))


def _release(reading: Reading, ticket: Ticket) -> Release | None:
    """The release that was said, else the one that the log prints; None for neither, or a build without a number."""
    if ticket.vllm is not None:
        return parse_release(ticket.vllm)
    try:
        release = parse_release(reading.version) if reading.version else None
    except UsageError:
        return None
    return None if release is not None and release < Release(0, 2, 0) else release  # 0.1.dev is a source build


def _unreadable(words: Sequence[str], release: Release | None) -> str:
    """Why no model can be taken from the words of a launch."""
    try:
        parse_serve_args(words, {}, release=release or NEWEST)
    except KvroomError as error:
        return error.problem
    return "no word of the launch names a model."


def _went_past(plan: Plan, reading: Reading) -> bool:
    """Whether the log shows a later stage than the one at which the rules say that the launch must stop."""
    verdict = plan.prediction.verdict
    return verdict.status is Status.FAILS and 0 <= rank(verdict.stage or "") < rank(reading.stage)
