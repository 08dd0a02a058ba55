"""A plan: the prediction of one launch with its remedies, findings and the command to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kvroom.findings.finding import Finding
from kvroom.launches.launch import Launch
from kvroom.ledger.log import predicted_log
from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Status, Verdict
from kvroom.remedies.advise import Advice, advise
from kvroom.remedies.blame import left_out
from kvroom.vllm.render import render_command


@dataclass(frozen=True)
class Plan:
    """What vLLM will do with one launch, and what to change. Remedies are worked out when asked for."""

    prediction: Prediction
    tokens: tuple[str, ...] = ()
    """The words after ``vllm serve`` as they were given."""
    notes: tuple[str, ...] = ()
    """What was assumed on the way here: the release, the card, the model's source."""
    source: str | None = None
    """The file the launch was read from, None for one given directly."""
    line: int | None = None
    launch: Launch | None = None
    """What it was read from, with the lines of its words and the pod around it; None for one given directly."""

    @cached_property
    def advice(self) -> Advice:
        """What to change, cheapest first."""
        return advise(self.prediction)

    @cached_property
    def verdict(self) -> Verdict:
        """The prediction's verdict with what vLLM's message leaves out."""
        verdict = self.prediction.verdict
        short = self._short_of_gpus()
        if short is not None:
            return Verdict(Status.FAILS, "distributed_init", left_out=short)
        if verdict.status is Status.FITS:
            return verdict
        return replace(verdict, left_out=left_out(self.prediction, self.advice))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Contradictions, dead advice and dangers in the flags."""
        from kvroom.findings.launch import findings_of

        return findings_of(self.prediction, self.launch.pod if self.launch else None)

    def _short_of_gpus(self) -> str | None:
        """Why the manifest's pods cannot hold the launch, None where they can or nothing is known."""
        if self.launch is None or self.launch.pod is None:
            return None
        from kvroom.findings.deployments.fewer_gpus_than_ranks import RULE

        return next((each.title for each in self.findings if each.code == RULE.code), None)

    @cached_property
    def command(self) -> tuple[str, ...]:
        """The command to run: as given where it fits, else with the changes that make it start."""
        changes = dict(self.advice.combined)
        setup = self.prediction.setup
        words: Sequence[str] = self.tokens
        if "unknown" in changes:
            words = _without(words, setup.args.unknown)
            del changes["unknown"]
        if changes:
            words = render_command(words, release=setup.release, set_flags=changes)
        return ("vllm", "serve", *words)

    @cached_property
    def predicted_log(self) -> tuple[str, ...]:
        """The start-up lines that this release will print."""
        return predicted_log(self.prediction)


def _without(words: Sequence[str], dropped: Sequence[str]) -> list[str]:
    """``words`` less those of ``dropped``, which stand in them in this order."""
    waiting = list(dropped)
    kept = []
    for word in words:
        if waiting and word == waiting[0]:
            waiting.pop(0)
        else:
            kept.append(word)
    return kept
