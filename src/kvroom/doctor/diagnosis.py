"""A diagnosis: the reading of a log with its cause, its findings and what to change."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.doctor.launch import Known
from kvroom.doctor.price import Offer
from kvroom.findings.finding import Finding, Severity
from kvroom.findings.held import Difference
from kvroom.ledger.verdict import Status, Verdict
from kvroom.logs.read import Log
from kvroom.logs.reading import Reading


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one start in a log came to."""

    log: Log
    reading: Reading
    known: Known
    findings: tuple[Finding, ...]
    """The cause first."""
    offers: tuple[Offer, ...]
    """What to change, the most promising first."""
    held: tuple[Difference, ...]
    """The prediction held against the log."""
    verdict: Verdict
    """``fits`` it came up, ``fails`` it did not or died, ``unknown`` the log does not tell."""
    source: str = ""

    @property
    def problem(self) -> bool:
        """Whether there is something to put right."""
        grave = any(finding.severity is Severity.ERROR for finding in self.findings)
        serving = any(
            finding.severity is Severity.WARNING and finding.code.startswith("KVR3") for finding in self.findings
        )
        return self.verdict.status is Status.FAILS or grave or serving

    @property
    def command(self) -> tuple[str, ...]:
        """The command that starts by the ledger, as given after a start that came up; empty where nobody knows one."""
        plan = self.known.priced
        if plan is None:
            return ()
        return plan.command if self.verdict.status is Status.FAILS else ("vllm", "serve", *self.known.words)
