"""KVR211: --max-model-len auto settled for less than the model can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import first, more_share, share_flag, takes_fp8
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR211",
    "auto-length-shortened",
    Severity.WARNING,
    "The automatic context length was cut to what the KV cache can hold.",
    explanation(
        what="""
            Reports the line in which `--max-model-len auto` (or -1) says that it reduced the length.
            """,
        why="""
            The server starts, and longer requests are refused later with an error of the client's kind.
            The length depends on what the profile run leaves, so it differs between cards, releases and even
            starts: a client that relies on it may fail after a restart.
            """,
        example="""
            A model for 40,960 tokens on a 24 GB card: 20,272 remain.
            """,
        cure="""
            Give `--max-model-len` with the length that is needed, so that a start with less fails visibly; or
            make room: `--kv-cache-dtype fp8`, a higher utilisation, more GPUs.
            """,
        since="vLLM 0.14.",
        references="`vllm/v1/core/kv_cache_utils.py: _auto_fit_max_model_len`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with both lengths and what the full one would need."""
    fact = case.reading.facts.last("autofit_reduced") or case.reading.facts.first("told_chosen")
    if fact is None:
        return
    told = fact.id == "told_chosen"
    asked = fact.whole("max_model_len" if told else "asked")
    length = fact.whole("estimated" if told else "max_model_len")
    if not asked or not length or length >= asked:
        return
    available = case.reading.size("available")
    missing = _missing(case, asked, length, available)
    share = more_share(case, missing) if missing else None
    why = f"Requests of more than {length:,} tokens will be refused."
    if missing:
        why += f" The full length needs about {show_bytes(missing)} more of KV cache per GPU."
    half = missing is None or available is None or missing <= available
    yield RULE.found(
        f"max_model_len auto settled on {length:,} of {asked:,} tokens ({length / asked:.0%}).",
        why,
        evidence=(shown(fact),),
        advice=first(
            (
                share_flag(share) if share else None,
                "--kv-cache-dtype fp8" if half and takes_fp8(case) else None,
                f"--max-model-len {length} (if that is enough: a start with less then fails instead of shrinking)",
            )
        ),
    )


def _missing(case: Case, asked: int, length: int, available: int | None) -> int | None:
    """What the full length needs besides ``available``; in proportion where the model is unknown."""
    if not available:
        return None
    layout = case.prediction.layout if case.prediction is not None else None
    needed = layout.needed_bytes(asked) if layout is not None else available * asked // length
    return needed - available if needed > available else None
