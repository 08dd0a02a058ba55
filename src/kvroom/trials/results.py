"""From what a launch did and printed to a trial: its figures, or why it did not serve and what to change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kvroom.doctor.diagnose import diagnose_log, open_log
from kvroom.doctor.diagnosis import Diagnosis
from kvroom.doctor.ticket import Ticket
from kvroom.errors import KvroomError
from kvroom.trials.changes import Changes, changes_of
from kvroom.trials.figures import Figures
from kvroom.trials.launch import Done, Order
from kvroom.trials.question import Question
from kvroom.trials.trial import Forecast, Proposal, State, Trial


def diagnosed(question: Question, log: Path, proposal: Proposal) -> Diagnosis | None:
    """The diagnosis of a trial's log with all that is known of the launch; None where nothing is in it."""
    tokens, env = question.launch_of(proposal)
    words = ["vllm", "serve", *tokens]
    ticket = Ticket(words, None, question.gpu, None, str(question.release), env, question.offline)
    try:
        return diagnose_log(open_log(log), ticket, str(log))[0]
    except KvroomError:
        return None


def result(
    question: Question, order: Order, proposal: Proposal, forecast: Forecast, done: Done, diagnosis: Diagnosis | None
) -> Trial:
    """The trial that ``order`` came to."""
    trial = Trial(
        number=order.number,
        proposal=proposal,
        state=State.FAILED,
        forecast=forecast,
        log=str(order.log),
        notes=done.notes,
        node=done.node,
    )
    served = done.ready is not None and done.exit_code is None and any(each.throughput for each in done.samples)
    if served:
        return replace(trial, state=State.STARTED, figures=_figures(question, proposal, done, diagnosis))
    name, reason = _cause(question, done, diagnosis)
    return replace(trial, reason=reason, finding=name, remedies=_remedies(question, diagnosis))


def _figures(question: Question, proposal: Proposal, done: Done, diagnosis: Diagnosis | None) -> Figures:
    pool = diagnosis.reading.pool if diagnosis else None
    claimed = next((each.kv_tokens for each in done.samples if each.kv_tokens), None)
    length = pool.max_model_len if pool else None
    return Figures(
        (pool.tokens if pool else None) or claimed,
        length or question.terms.value(proposal.changes, "max_model_len"),
        done.peak,
        done.ready or 0.0,
        done.samples,
    )


def _cause(question: Question, done: Done, diagnosis: Diagnosis | None) -> tuple[str, str]:
    """The finding behind a launch that did not serve, and the reason in a sentence."""
    found = diagnosis.findings[0] if diagnosis and diagnosis.findings else None
    if found is not None and str(found.severity) == "error":
        return f"{found.code} {found.name}", found.title
    if done.ready is not None:
        problem = next((each.problem for each in done.samples if each.problem), "it stopped while it was measured")
        return "", f"it came up and did not serve: {problem}"
    if done.exit_code is not None:
        return "", f"the server ended with code {done.exit_code} before it served"
    return "", f"it did not answer within {question.timeout:g} s"


def _remedies(question: Question, diagnosis: Diagnosis | None) -> tuple[Changes, ...]:
    """What the diagnosis offers that flags or variables can do, the most promising first."""
    found: list[Changes] = []
    for offer in diagnosis.offers if diagnosis else ():
        try:
            changes = changes_of(offer.flags, question.release) if offer.flags else None
        except KvroomError:
            continue
        if changes and changes not in found:
            found.append(changes)
    return tuple(found)
