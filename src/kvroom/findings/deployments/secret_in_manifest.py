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

_VARIABLES = {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"}
"""Flags, and the variables that say the same."""


def find(placed: Placed) -> Iterator[Finding]:
    """One finding for each variable and flag."""
    for name in placed.pod.open_secrets:
        variable = _VARIABLES.get(name, name)
        cure = "valueFrom: {secretKeyRef: ...}" if placed.pod.cluster else f"the bare name, - {variable}"
        done = f"Set {variable} in place of the flag" if name.startswith("-") else "Keep it elsewhere"
        yield RULE.found(
            f"{name} is written out.",
            evidence=(placed.shown(name, name),),
            advice=(f"{done}, by {cure}. Revoke this one.",),
        )
