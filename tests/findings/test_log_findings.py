"""Each finding about a log appears on the logs that show it, and not on those that look alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvroom.doctor.launch import known_launch
from kvroom.doctor.price import taken_apart
from kvroom.doctor.ticket import Ticket
from kvroom.findings.case import Case
from kvroom.findings.finding import HEADINGS, Severity
from kvroom.findings.log import log_findings
from kvroom.findings.log_catalogue import LOG
from kvroom.logs.read import read_log
from kvroom.vllm.releases import Release, parse_release

FIXTURES = Path(__file__).parent / "logs"
HEALTHY = Path(__file__).parent.parent / "data" / "logs"
MODULES = {module.RULE.code: module for module in LOG}


def case_of(path: Path) -> Case:
    with path.open("rb") as stream:
        reading = read_log(stream).readings[0]
    release = parse_release(reading.version) if reading.version else Release(0, 11, 0)
    card = path.parent / "gpu.txt"
    if not card.exists():
        return Case(reading, release)
    known = known_launch(reading, Ticket(gpu=card.read_text("utf-8").strip(), offline=True))
    return Case(reading, release, known.predicted.prediction if known.predicted else None)


def _logs(kind: str) -> list[Path]:
    return sorted(FIXTURES.glob(f"*/{kind}*.log"))


@pytest.mark.parametrize("path", _logs("yes"), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_finding_appears_where_the_log_shows_it(path: Path) -> None:
    found = list(MODULES[path.parent.name].find(case_of(path)))

    assert found
    for finding in found:
        assert finding.title.strip()
        assert finding.evidence, "a finding shows the line it rests on"
        for advice in finding.advice:
            looks_like_flags = re.match(r"--|[A-Z0-9_]{4,}=", advice)
            assert taken_apart(advice)[0] or not looks_like_flags, f"a remark behind flags stands in brackets: {advice}"


@pytest.mark.parametrize("path", _logs("no"), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_finding_stays_away_from_what_looks_alike(path: Path) -> None:
    assert not list(MODULES[path.parent.name].find(case_of(path)))


@pytest.mark.parametrize("code", sorted(MODULES))
def test_every_finding_has_both_kinds_of_fixture_and_a_whole_explanation(code: str) -> None:
    assert list((FIXTURES / code).glob("yes*.log"))
    assert list((FIXTURES / code).glob("no*.log"))
    assert all(f"## {heading}" in MODULES[code].RULE.explanation for heading in HEADINGS)


@pytest.mark.parametrize("name", ["compile-default", "qwen3_next-hybrid", "own-run-0.32.0-cpu-ok", "kv-autofit"])
def test_a_healthy_start_of_a_real_engine_raises_no_alarm(name: str) -> None:
    found = log_findings(case_of(HEALTHY / f"{name}.log"))

    assert [finding for finding in found if finding.severity is Severity.ERROR] == []
