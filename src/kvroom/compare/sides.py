"""From a reading or a command to one side of the comparison, predicted where that can be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from kvroom.compare.figures import ledger_of_log, ledger_of_prediction, pool_of_log, pool_of_prediction
from kvroom.compare.settings import settings_of_command, settings_of_log
from kvroom.compare.side import Figure, Setting, Side
from kvroom.devices.device import Device
from kvroom.doctor.launch import known_launch
from kvroom.doctor.ticket import Ticket
from kvroom.errors import KvroomError
from kvroom.launches.launch import Launch
from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status
from kvroom.logs.reading import Reading, State
from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.releases import parse_release
from kvroom.vllm.settings import Settings

_RESOLVED = ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization")
"""Numbers that a log shows although nobody wrote them."""
_SAME_CARD = 0.01
"""Share by which a card's total may differ between drivers."""


def side_of_log(reading: Reading, label: str, ticket: Ticket, card: Device | None = None) -> Side:
    """The side of one start in a log. What cannot be predicted is in ``notes``, not an error.

    ``card`` is the one that is assumed where nobody names one.
    """
    launch = known_launch(reading, ticket if card is None else replace(ticket, gpu=card.name))
    prediction, notes = None, launch.notes
    if card is not None:
        notes = (f"The card is taken to be that of the other log, {card.name}.", *notes)
    if launch.release is None:
        notes = ("The log names no release whose rules are known: nothing is filled in or predicted.",)
    elif launch.predicted is not None:
        prediction = _as_started(launch.predicted.prediction, reading, card)
    settings = settings_of_log(reading, launch.release, prediction)
    if prediction is not None and ticket.gpu is not None:
        settings.setdefault("device", Setting(prediction.setup.machine.device.name, default=True))
    failed = reading.state in {State.FAILED, State.DIED}
    return Side(
        label=label,
        kind="log",
        state=str(reading.state),
        stage=reading.stage,
        error=reading.error.text if failed and reading.error else None,
        error_line=reading.error.line if failed and reading.error else None,
        failed=failed,
        reading=reading,
        release=launch.release,
        prediction=prediction,
        settings=settings,
        ledger=ledger_of_log(reading, settings, prediction),
        pool=pool_of_log(reading, settings),
        notes=notes,
    )


def side_of_command(launch: Launch, label: str, request: Request, other: Side | None) -> Side:
    """The predicted side of a command on the card and release of the log beside it, where nobody says others.

    Raises a KvroomError where the command cannot be predicted.
    """
    log = other.prediction if other else None
    hint = launch.version_hint
    notes: tuple[str, ...] = ()
    if hint is None and other is not None and other.release is not None:
        hint, notes = str(other.release), (f"vLLM {other.release}, as in {other.label}.",)
    asked = request
    if request.gpu is None and log is not None:
        card = log.setup.machine.device
        asked = replace(request, gpu=card.name, measured={"total": card.total_bytes})
        notes += (f"The card is that of {other.label if other else ''}: {card.name}.",)
    release = _release(hint)
    plan = plan_tokens(
        launch.tokens,
        launch.env,
        replace(asked, vllm=asked.vllm or release),
        count_hint=launch.gpu_hint or (log.setup.machine.count if log else None),
        notes=notes,
    )
    prediction = plan.prediction
    if request.gpu is None and log is not None:
        machine = replace(prediction.setup.machine, device=log.setup.machine.device)
        prediction = predict(replace(prediction.setup, machine=machine))
    moved = _from_log(prediction, other)
    version = other.value("version") if other and other.release == prediction.setup.release else None
    verdict = moved.verdict
    return Side(
        label=label,
        kind="command",
        state=str(verdict.status),
        stage=verdict.stage or "",
        error=verdict.message,
        failed=verdict.status is Status.FAILS,
        release=prediction.setup.release,
        prediction=prediction,
        settings=settings_of_command(prediction, str(version or prediction.setup.release)),
        ledger=ledger_of_prediction(moved),
        pool=pool_of_prediction(moved),
        notes=(*launch.notes, *plan.notes),
    )


def _release(hint: str | None) -> str | None:
    """``hint`` as a release, None where it is none (an image tag such as ``latest``)."""
    try:
        return str(parse_release(hint)) if hint else None
    except KvroomError:
        return None


def _as_started(prediction: Prediction, reading: Reading, card: Device | None) -> Prediction:
    """The prediction with what the log shows of the launch beside its arguments: backend, card, filled-in numbers."""
    setup = prediction.setup
    if card is not None:
        setup = replace(setup, machine=replace(setup.machine, device=card))
    device, total = setup.machine.device, reading.size("total")
    if total and abs(total - device.total_bytes) <= _SAME_CARD * device.total_bytes:
        device = replace(device, total_bytes=total, total_low=total, total_high=total, basis="measured")
        setup = replace(setup, machine=replace(setup.machine, device=device))
    changes = _shown_changes(setup.args, prediction.settings, reading)
    backend = reading.attention_backend
    attempts = [changes]
    if backend and (prediction.backend is None or prediction.backend.name != backend):
        attempts.insert(0, {**changes, "attention_backend": backend})
    for attempt in attempts:
        try:
            found = predict(replace(setup, args=replace(setup.args, **attempt)))  # type: ignore[arg-type]
        except (KvroomError, ArithmeticError):
            continue
        if found.ledger is not None:
            return found
    return predict(setup)


def _shown_changes(args: EngineArgs, settings: Settings | None, reading: Reading) -> dict[str, object]:
    """Arguments to set so that the rules start from the numbers that the log shows."""
    changes: dict[str, object] = {}
    for name in _RESOLVED:
        value = reading.settings.get(name)
        plain = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        if plain and getattr(args, name) is None and getattr(settings, name, None) != value:
            changes[name] = value
    return changes


def _from_log(prediction: Prediction, other: Side | None) -> Prediction:
    """The prediction moved from what the log beside it measured, where both are of one machine, model and release."""
    setup = prediction.setup
    log = other.prediction.setup if other is not None and other.prediction is not None else None
    if other is None or log is None or log.release != setup.release or log.shape != setup.shape:
        return prediction
    if log.draft != setup.draft or log.machine.device != setup.machine.device:
        return prediction
    names = ["weights", "activation", "other", "cuda_graphs"]
    if log.args.kv_cache_memory_bytes is None:
        names.append("available")
    measured = _measured(other.ledger, names)
    return predict(replace(setup, measured=measured, logged_args=log.args)) if measured else prediction


def _measured(ledger: Mapping[str, Figure], names: list[str]) -> dict[str, int]:
    return {name: int(ledger[name].value) for name in names if name in ledger}


def argument_names() -> frozenset[str]:
    """The arguments in which two launches can differ, beside the model and what is only passed on."""
    kept = {"model", "served_model_name", "given", "passed", "unknown", "env", "revision", "trust_remote_code"}
    return frozenset(field.name for field in fields(EngineArgs)) - kept
