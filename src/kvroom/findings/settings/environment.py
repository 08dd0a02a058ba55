"""KVR112: an environment variable that this release does not read."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.vllm.environment import instead, variables

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR112",
    "environment-variable-not-read",
    Severity.WARNING,
    "vLLM does not read this environment variable in this release.",
    explanation(
        what="""
            Looks up every `VLLM_*` variable of the launch in the variables that the release reads.
            Reports those that it no longer reads, does not read yet, or that are one slip away from one it
            reads.
            """,
        why="""
            vLLM starts without an error (newer releases log a warning), so the setting seems to be in force.
            `VLLM_ATTENTION_BACKEND` of an old guide leaves the backend to be chosen automatically, and
            `VLLM_USE_V1=0` starts the same V1 engine.
            """,
        example="""
            `VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve ...` on vLLM 0.28: use
            `--attention-backend FLASHINFER`.
            """,
        cure="Use the flag that the finding names, or remove the variable.",
        since="""
            By variable: `VLLM_USE_V1` is without effect since vLLM 0.11, `VLLM_ATTENTION_BACKEND` since 0.15.
            """,
        references="`vllm/envs.py`",
    ),
)
_CLOSE = 0.92


def find(prediction: Prediction) -> Iterator[Finding]:
    """One finding for each variable that has no effect."""
    release = prediction.rules.release
    known = variables()
    for name, value in prediction.setup.args.env.items():
        if not name.startswith("VLLM_"):
            continue
        variable = known.get(name)
        cure = instead(name)
        if variable is None:
            near = _nearest(name, known)
            if near is None:
                continue
            title = f"No release of vLLM reads {name}; {near} is a variable."
            cure = f"Write {near}."
        elif variable.gone(release):
            title = f"vLLM {release} does not read {name}; {variable.last} was the last to do so."
        elif variable.missing(release):
            title = f"vLLM {release} does not read {name}, which came after {variable.absent_until}."
            cure = None
        else:
            continue
        yield RULE.found(title, evidence=(Evidence(f"{name}={value}"),), advice=(cure or f"Remove {name}.",))


def _nearest(name: str, known: object) -> str | None:
    close = get_close_matches(name, list(known), n=1, cutoff=_CLOSE)  # type: ignore[call-overload]
    return close[0] if close else None
