"""What the findings about refusals share: which message stopped the start, and names of settings by release."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

_LONGEST = 160


def cause(case: Case, *ids: str, under: tuple[str, ...] = ()) -> Fact | None:
    """The first message with one of ``ids`` where the start stopped for it, else None.

    ``under`` names the messages that may come first and of which it is the reason.
    """
    error = case.reading.error
    if error is None or error.id not in {*ids, *under}:
        return None
    return case.reading.facts.first(*ids) if error.id in under else error


def backend_option(case: Case) -> str:
    """How the release is told which attention backend to take."""
    by_flag = case.since("0.13.0")
    if by_flag is None:
        return "--attention-backend (before vLLM 0.13 VLLM_ATTENTION_BACKEND)"
    return "--attention-backend" if by_flag else "VLLM_ATTENTION_BACKEND"


def chosen_backend(case: Case, name: str) -> str:
    """The setting that chooses the attention backend ``name``."""
    by_flag = case.since("0.13.0")
    flag, variable = f"--attention-backend {name}", f"VLLM_ATTENTION_BACKEND={name}"
    if by_flag is None:
        return f"{flag} (before vLLM 0.13 {variable})"
    return flag if by_flag else variable


def capability(number: int) -> str:
    """A compute capability as vLLM counts it, for people.

    >>> capability(89), capability(120)
    ('8.9', '12.0')
    """
    return f"{number // 10}.{number % 10}"


def short(text: str) -> str:
    """``text`` on one line and not too long."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def model_of(case: Case) -> str:
    """The model as the log names it, else ``the model``."""
    return short(case.reading.model or "") or "the model"
