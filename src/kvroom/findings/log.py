"""The findings of one log, the cause first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Severity
from kvroom.findings.log_catalogue import LOG

if TYPE_CHECKING:
    from kvroom.findings.case import Case

_REST = "KVR215"
"""The finding for errors that no other one explains."""
_ORDER = {severity: rank for rank, severity in enumerate(Severity)}


def log_findings(case: Case) -> tuple[Finding, ...]:
    """What is wrong with a start: errors, warnings, notes, each in the order in which causes are judged."""
    found = [finding for module in LOG for finding in module.find(case)]
    if any(finding.severity is Severity.ERROR and finding.code != _REST for finding in found):
        found = [finding for finding in found if finding.code != _REST]
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))
