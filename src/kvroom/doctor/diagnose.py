"""Diagnosing a log: read it, find what is wrong, price what to change."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from kvroom.doctor.diagnosis import Diagnosis
from kvroom.doctor.launch import known_launch
from kvroom.doctor.price import offers_of
from kvroom.doctor.sniff import what_else
from kvroom.doctor.ticket import Ticket
from kvroom.errors import UsageError, short
from kvroom.files import open_stream, reason
from kvroom.findings.case import Case
from kvroom.findings.finding import Finding, Severity
from kvroom.findings.held import held_against
from kvroom.findings.log import log_findings
from kvroom.ledger.verdict import Status, Verdict
from kvroom.logs.read import Log, read_log
from kvroom.logs.reading import Reading, State


def diagnose(
    log: str | bytes | os.PathLike[str] | BinaryIO,
    *,
    command: str | Sequence[str] | None = None,
    model: str | None = None,
    gpu: str | None = None,
    gpu_memory: str | None = None,
    vllm: str | None = None,
    env: Mapping[str, str] | None = None,
    offline: bool = False,
) -> Diagnosis:
    """The diagnosis of the last start in ``log``: its text, a path, or a binary stream.

    The keywords say what the log does not: the launch command, the model, the card with its count
    (``"2x RTX 3090"``), the release, environment variables. Raises a KvroomError for a log that cannot be
    read or is none of vLLM.
    """
    ticket = Ticket(command, model, gpu, gpu_memory, vllm, env or {}, bool(offline))
    return diagnose_log(open_log(log), ticket)[0]


def open_log(log: str | bytes | os.PathLike[str] | BinaryIO) -> Log:
    """``log`` read; UsageError where it cannot be."""
    if isinstance(log, str | bytes):
        data = log.encode("utf-8", "replace") if isinstance(log, str) else log
        return read_log(io.BytesIO(data))
    if isinstance(log, os.PathLike):
        name = short(str(Path(log)))
        try:
            with open_stream(Path(log)) as stream:
                return _read(stream, name)
        except (OSError, ValueError) as error:
            raise UsageError(f"{name} cannot be read: {reason(error)}.", "Give the path of a log.") from None
    return _read(log, "The standard input" if log is getattr(sys.stdin, "buffer", None) else "")


def _read(stream: BinaryIO, name: str) -> Log:
    """The log in ``stream``; an error says the name as well."""
    try:
        return read_log(stream)
    except UsageError as error:
        raise UsageError(f"{name}: {error.problem}" if name else error.problem, error.cure) from None


def diagnose_log(log: Log, ticket: Ticket, source: str = "") -> list[Diagnosis]:
    """The diagnoses of every start of ``log``, the last one first.

    Raises UsageError for a log in which nothing of vLLM is recognised, with what it looks like instead.
    """
    if log.empty and ticket.command is None:
        raise UsageError(f"{source or 'This'} is no log of vLLM{what_else(log)}.", _WANTED)
    return [_diagnosed(log, reading, ticket, source) for reading in log.readings]


_WANTED = "Give what `vllm serve` printed, from its first line on: the cause stands above the last traceback."


def _diagnosed(log: Log, reading: Reading, ticket: Ticket, source: str) -> Diagnosis:
    known = known_launch(reading, ticket)
    prediction = known.predicted.prediction if known.predicted else None
    device = prediction.setup.machine.device.name if prediction else ticket.gpu
    reading = replace(
        reading,
        settings={**known.settings(), **reading.settings},
        device=reading.device or device,
        model=reading.model or ticket.model or (prediction.setup.args.model if prediction else None),
    )
    findings = log_findings(Case(reading, known.release, prediction))
    if reading.state is State.UNFINISHED and any(found.code in _CAPACITY for found in _grave(findings)):
        reading = replace(reading, state=State.FAILED, stage="kv_sizing")
    failed = reading.state in {State.FAILED, State.DIED} or bool(_grave(findings))
    return Diagnosis(
        log,
        reading,
        known,
        findings,
        offers_of(findings, known, failed=failed, longest=reading.pool.estimated_max_len),
        held_against(prediction, reading) if prediction else (),
        _verdict(reading, failed=failed),
        source,
    )


_CAPACITY = frozenset({"KVR202", "KVR203"})
"""Findings that show a start to have stopped where the pool is sized, though its last line is missing."""


def _grave(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def _verdict(reading: Reading, *, failed: bool) -> Verdict:
    if failed:
        message = reading.error.text if reading.error else None
        return Verdict(Status.FAILS, reading.stage, message)
    if reading.came_up:
        return Verdict(Status.FITS)
    return Verdict(Status.UNKNOWN, reading.stage, "The log ends before the start is decided.")
