"""The findings of one launch, the gravest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.findings.catalogue import DEPLOYMENT, LAUNCH
from kvroom.findings.finding import Finding, Severity

if TYPE_CHECKING:
    from kvroom.launches.launch import Pod
    from kvroom.ledger.predict import Prediction

_ORDER = {severity: rank for rank, severity in enumerate(Severity)}


def findings_of(prediction: Prediction, pod: Pod | None = None) -> tuple[Finding, ...]:
    """Contradictions, dead advice and dangers in a launch and its ``pod``: errors, warnings, notes, each by code."""
    found = [finding for module in LAUNCH for finding in module.find(prediction)]
    if pod is not None:
        from kvroom.findings.deployments.place import Placed

        placed = Placed(prediction, pod)
        found += [finding for module in DEPLOYMENT for finding in module.find(placed)]
    return tuple(sorted(found, key=lambda finding: (_ORDER[finding.severity], finding.code)))
