"""What to change, priced on the ledger of this very start; only changes that do not fail there are offered."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvroom.doctor.launch import Known
from kvroom.errors import KvroomError
from kvroom.findings.finding import Finding
from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status
from kvroom.plans.plan import Plan
from kvroom.remedies.remedy import Remedy, room
from kvroom.vllm.parse import parse_serve_args

_FLAG = re.compile(r"--[a-z][a-z0-9-]*(?:[.=].*)?")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{2,60}=\S{1,200}")


@dataclass(frozen=True, slots=True)
class Offer:
    """One change with what it leads to."""

    flags: tuple[str, ...]
    """Flags, or variables as ``NAME=VALUE``; empty for a change of the machine or a sentence."""
    why: str
    price: str = ""
    risk: bool = False
    after: Prediction | None = None
    """The launch after it; None where it cannot be predicted."""
    code: str = ""
    """The finding that offers it."""
    name: str = ""
    """What to call a change without flags."""

    @property
    def room(self) -> int:
        """0 when it surely starts, 1 should, 2 may or nobody knows, 3 fails."""
        return 2 if self.after is None else room(self.after)


def offers_of(
    findings: Sequence[Finding], known: Known, *, failed: bool, longest: int | None = None
) -> tuple[Offer, ...]:
    """The changes to try, the most promising first; without those that the ledger shows to fail.

    What the main finding advises comes first, then what the ledger finds, then the rest. ``longest`` is the
    length that the engine itself said is the most: a longer one is not offered.
    """
    causes = [finding for finding in findings if finding.severity == "error"]
    first = [offer for finding in causes[:1] for offer in _advised(finding, known)]
    rest = [offer for finding in [*causes[1:], *_contributors(findings)] for offer in _advised(finding, known)]
    ledger = [_from(remedy) for remedy in known.priced.advice.remedies] if failed and known.priced else []
    chosen: dict[tuple[str, ...], Offer] = {}
    for offer in (*first, *ledger, *rest):
        if longest and _too_long(offer.flags, longest):
            continue
        key = tuple(sorted(_names(offer.flags))) or (offer.why,)
        present = chosen.get(key)
        if present is None or offer.room < present.room:
            chosen[key] = replace(offer, code=present.code) if present else offer
    kept = [offer for offer in chosen.values() if offer.room < 3 or not failed]
    return tuple(sorted(kept, key=_promise))


def _promise(offer: Offer) -> tuple[bool, bool]:
    """What surely helps first, then what may; sentences keep their place among the latter."""
    return offer.room > 1, offer.risk and offer.room > 0


def _too_long(flags: Sequence[str], longest: int) -> bool:
    return len(flags) == 2 and flags[0] == "--max-model-len" and flags[1].isdecimal() and int(flags[1]) > longest


def _contributors(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity == "warning"]


def _names(flags: Sequence[str]) -> list[str]:
    return [word.partition("=")[0] for word in flags if word.startswith("--") or _VARIABLE.fullmatch(word)]


def _from(remedy: Remedy) -> Offer:
    return Offer(remedy.flags, remedy.why, remedy.price, remedy.risk, remedy.after, name=remedy.name)


def _advised(finding: Finding, known: Known) -> Iterator[Offer]:
    """What a finding advises: flags or variables are priced, a sentence is passed on."""
    for advice in finding.advice:
        flags, remark = taken_apart(advice)
        if flags:
            yield Offer(flags, finding.title, remark, after=_after(flags, known), code=finding.code)
        else:
            yield Offer((), advice, code=finding.code)


def taken_apart(advice: str) -> tuple[tuple[str, ...], str]:
    """The flags or variables of an advice, and the remark in brackets behind them; no flags for a sentence.

    >>> taken_apart("--max-model-len 8192 (longer requests are refused)")
    (('--max-model-len', '8192'), 'longer requests are refused')
    >>> taken_apart("Stop the other programs on the card.")
    ((), '')
    """
    text, bracket, remark = advice.partition(" (")
    try:
        words = shlex.split(text)
    except ValueError:
        return (), ""
    if not words or not (_FLAG.fullmatch(words[0]) or all(map(_VARIABLE.fullmatch, words))):
        return (), ""
    return tuple(words), remark.removesuffix(")") if bracket else ""


def _after(flags: Sequence[str], known: Known) -> Prediction | None:
    """The launch with ``flags`` added, moved by what the log measured; None where that cannot be told."""
    plan: Plan | None = known.priced
    if plan is None:
        return None
    before = plan.prediction.setup
    variables = dict(word.split("=", 1) for word in flags if _VARIABLE.fullmatch(word))
    words = [word for word in flags if not _VARIABLE.fullmatch(word)]
    try:
        args = parse_serve_args([*known.words, *words], {**known.env, **variables}, release=before.release)
        if args.unknown:
            return None
        logged = (before.logged_args or before.args) if before.measured else None
        after = predict(replace(before, args=args, logged_args=logged))
    except KvroomError:
        return None
    return None if variables and after.verdict.status is Status.FAILS else after
