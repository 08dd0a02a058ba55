"""KVR184: a secret stands in the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation

if TYPE_CHECKING:
    from kvroom.findings.deployments.place import Placed

RULE = Rule(
    "KVR184",
    "secret-written-out",
    Severity.WARNING,
    "A token or key is written into the manifest.",
    explanation(
        what="""
            Looks for environment variables named like a secret (`HF_TOKEN`, `VLLM_API_KEY`) with a value, and for flags
            (`--api-key`, `--hf-token`) with one.
            """,
        why="""
            Manifests go into repositories, tickets and `kubectl describe`; the token is then no secret any more.
            Placeholders and references are not reported.
            """,
        example="`- name: HF_TOKEN` with `value: hf_...`.",
        cure="""
            Kubernetes: `valueFrom: {secretKeyRef: {name: hf-token, key: token}}`.
            Compose: the bare name, `- HF_TOKEN`, which takes the value from the shell.
            Then revoke the token.
            """,
        since="All releases.",
        references="Kubernetes: Secrets",
    ),
)

_VARIABLES = {"--api": "VLLM_API_KEY", "--hf": "HF_TOKEN"}
"""How flags begin, also in short, and the variables that say the same."""


def find(placed: Placed) -> Iterator[Finding]:
    """One finding for each variable and flag."""
    for name in placed.pod.open_secrets:
        yield RULE.found(
            f"{name} is written out.",
            evidence=(placed.shown(name, name),),
            advice=(f"{_cure(name, cluster=placed.pod.cluster)}. Revoke this one.",),
        )


def _cure(name: str, *, cluster: bool) -> str:
    variable = next((each for begin, each in _VARIABLES.items() if name.startswith(begin)), name)
    if variable.startswith("-"):
        return "Take it out of the command"
    done = f"Set {variable} in place of the flag" if name.startswith("-") else "Keep it elsewhere"
    return f"{done}, by {'valueFrom: {secretKeyRef: ...}' if cluster else f'the bare name, - {variable}'}"
