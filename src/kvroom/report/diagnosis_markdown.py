"""A diagnosis as Markdown: for an issue, or with ``share`` as a cleaned excerpt that names nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvroom.doctor.diagnosis import Diagnosis
from kvroom.doctor.words import headline, identity, pool_lines, room_after, serving_lines
from kvroom.redaction import Anonymizer
from kvroom.report.command import show_command
from kvroom.units import GIB

_EXCERPT = 200
_LONGEST = 600
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!@&$])")


def diagnosis_markdown(diagnosis: Diagnosis, *, excerpt: bool = False) -> str:
    """The diagnosis for a public page: secrets, users, hosts and addresses are masked.

    With ``excerpt`` the lines of the log that were recognised follow.
    """
    hide = Anonymizer()
    lines = list(_lines(diagnosis, hide))
    if excerpt:
        lines += _excerpt(diagnosis, hide)
    return "\n".join(lines) + "\n"


def _lines(diagnosis: Diagnosis, hide: Anonymizer) -> Iterator[str]:
    def said(text: str) -> str:
        return _shown(hide(text))

    reading = diagnosis.reading
    yield f"**{diagnosis.verdict.status.upper()}** {said(identity(diagnosis))}: {said(headline(diagnosis))}"
    if reading.error is not None:
        yield ""
        yield from _fenced([f"{reading.error.line}: {hide(reading.error.text[:_LONGEST])}"])
    for finding in diagnosis.findings:
        yield ""
        yield f"- **{finding.severity} {finding.code} {finding.name}** {said(finding.title)}"
        if finding.why != finding.title:
            yield f"  {said(finding.why)}"
    if diagnosis.offers:
        yield ""
        yield "| what to change | predicted |"
        yield "| --- | --- |"
    for offer in diagnosis.offers[:6]:
        change = show_command(offer.flags) if offer.flags else offer.name or offer.why
        yield f"| {_code(hide(change))} | {said(room_after(offer.after).removeprefix('  ->  '))} |"
    if reading.measured:
        yield ""
        yield "| GiB per GPU | logged | predicted |"
        yield "| --- | --- | --- |"
    predicted = {each.entry: each for each in diagnosis.held}
    for name, entry in reading.measured.items():
        each = predicted.get(name)
        yield f"| {name} | {entry.value / GIB:.2f} | {f'{each.expected / GIB:.2f}' if each else ''} |"
    for line in (*pool_lines(reading), *serving_lines(reading)):
        yield ""
        yield f"- {said(line)}"


def _excerpt(diagnosis: Diagnosis, hide: Anonymizer) -> Iterator[str]:
    """The recognised lines, each once; in the middle of many some are left out."""
    by_line = {fact.line: fact for fact in diagnosis.reading.facts}
    facts = [by_line[line] for line in sorted(by_line)]
    if len(facts) > _EXCERPT:
        facts = [*facts[: _EXCERPT // 2], *facts[-_EXCERPT // 2 :]]
    yield ""
    yield "<details><summary>Lines of the log</summary>"
    yield ""
    yield from _fenced(
        [f"{fact.line}: {f'({fact.process}) ' if fact.process else ''}{hide(fact.text[:_LONGEST])}" for fact in facts]
    )
    yield ""
    yield "</details>"


def _fenced(lines: list[str]) -> Iterator[str]:
    """``lines`` as a block of code whose fence none of them can close."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield from (line.replace("\n", " ").replace("\r", " ") for line in lines)
    yield fence


def _shown(text: str) -> str:
    """``text`` on one line in which nothing is taken for markup; a backslash alone does not stop a mention."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split())).replace("@", "@\u2060")


def _code(text: str) -> str:
    text = text.replace("|", "\\|").replace("\n", " ")
    return f"`{text}`" if "`" not in text else _shown(text)
