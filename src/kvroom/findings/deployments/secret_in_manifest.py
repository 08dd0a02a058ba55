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
        what="Looks for environment variables named like a secret (`HF_TOKEN`, `VLLM_API_KEY`) with a value.",
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


def find(placed: Placed) -> Iterator[Finding]:
    """One finding for each variable."""
    for name in placed.pod.open_secrets:
        cure = "valueFrom: {secretKeyRef: ...}" if placed.pod.cluster else f"the bare name, - {name}"
        yield RULE.found(
            f"{name} is written out.",
            evidence=(placed.shown(name, name),),
            advice=(f"Take it from a secret: {cure}. Revoke this one.",),
        )
