"""The findings of one launch, the gravest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.findings.catalogue import LAUNCH
from kvroom.findings.finding import Finding, Severity

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

_ORDER = {severity: rank for rank, severity in enumerate(Severity)}


def findings_of(prediction: Prediction) -> tuple[Finding, ...]:
    """Contradictions, dead advice and dangers in a launch: errors, warnings, notes, each by code."""
    found = [finding for module in LAUNCH for finding in module.find(prediction)]
    return tuple(sorted(found, key=lambda finding: (_ORDER[finding.severity], finding.code)))
