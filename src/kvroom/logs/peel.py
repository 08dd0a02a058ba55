"""What stands before a message: container, cluster and CI prefixes, the process, vLLM's own record."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_ANSI = re.compile(
    r"(?:\x1b|\^\[(?=\[)|\bESC(?=\[\d))(?:\[[0-9;?]{0,30}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))"
)
_DAY = r"\d{4}-\d\d-\d\d"
_OUTER = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s{0,40}>{1,5}\s?(?=\S)",  # quoted in an answer
        rf"\[{_DAY}T[\d:.]{{5,20}}Z\]\s?",  # continuous integration
        rf"{_DAY}[T ]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?(?:Z|[+-]\d\d:?\d\d)?\s{{1,4}}(?:std(?:out|err)\s[FP]\s)?"
        r"(?!- |\| [A-Z]{4,8} \|)",  # docker and kubectl --timestamps, CRI
        rf"(?:INFO|ERROR|WARNING|DEFAULT|DEBUG|NOTICE)\s{{1,4}}{_DAY}T[\d:.]{{5,20}}Z\s{{1,4}}(?:\[resource\.[^\]]{{0,200}}\]\s{{1,4}})?",
        r"[A-Z][a-z]{2}\s{1,2}\d{1,2}\s\d\d:\d\d:\d\d\s\S{1,200}\s[^\s\[:]{1,100}(?:\[\d{1,9}\])?:\s?",  # journald
        r"\[(?:pod|container)/[^\]]{1,300}\]\s{1,4}",  # kubectl --prefix
        r"vLLM STD(?:OUT|ERR):\s",
        r"\[(?:Error|Info|Warning|Debug)\]\s(?:\([A-Z][a-z]{1,20}\)\s)?",  # a launcher's own record
        r"\[Stage-\d{1,3}\]\s",  # of several engines in one server
        rf"[-*]\s(?={_DAY}T)",  # an item of a list in a ticket
        rf"{_DAY}\s\d\d:\d\d:\d\d\s\|\s[A-Z]{{4,8}}\s\|\s(?:std(?:out|err)|[\w.:]{{1,80}})\s\|\s",
        rf"{_DAY}\s\d\d:\d\d:\d\d(?:,\d{{3}})?\s-\s[\w.]{{1,120}}\s-\s(?:INFO|WARNING|ERROR|DEBUG)\s-\s",
        r"[a-z0-9][\w.-]{3,120}\s[a-z0-9][\w.-]{0,60}\s"
        r"(?=\((?:APIServer|EngineCore|Worker|VllmWorker|RayWorker)\w{0,40} (?:rank=\d{1,6} )?pid=)",  # stern
        r"\[[A-Za-z][\w.-]{0,60}\]:\s(?=[(A-Z\[])",  # the container's name, as hosts of containers put it
        r"[│┃]\s{0,4}(?=\S)",  # copied from the frame of a terminal program
        r"\s{0,8}\|\s{1,8}(?=\[)|--$",  # what a copied CI page leaves
        r"(?!INFO\b|ERROR\b|WARNING\b|DEBUG\b)[A-Za-z0-9][\w.-]{0,80}\s{1,40}\|\s?",  # docker compose
        r"\[rank(?P<rank>\d{1,6})\]:\s?",
        r"\(?(?P<name>[A-Za-z_][\w:. -]{0,80}?)(?:\s{1,4}rank=(?P<number>\d{1,6}))?"
        r"\s{1,4}pid=(?:\d{1,9}|<pid>)(?:,\s{0,4}ip=[^\s)]{1,60})?\)\s?",
    )
)
_RECORD = re.compile(
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s{1,4})?"
    r"(?:(?P<month>\d\d)-(?P<day>\d\d)\s(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:\.\d{1,6})?)\s{1,4})?"
    r"\[?(?P<file>[\w./-]{1,200}\.py):(?P<line>\d{1,6})\]\s?"
)
_REPEATED = re.compile(r"\s{0,4}\[repeated \d{1,9}x across cluster\]\s{0,4}$")
_JSON_TEXT = ("log", "message", "msg", "textPayload", "MESSAGE", "line")
_DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log without what stands before it."""

    number: int
    """Line of the file, from 1."""
    text: str
    process: str = ""
    """Who printed it: ``APIServer``, ``EngineCore_DP0``, ``Worker_TP1``; empty where nobody says."""
    level: str = ""
    file: str = ""
    """The source file of vLLM, without folders."""
    time: float | None = None
    """Seconds since the start of the year, where the record has a time."""


def peel(raw: str, number: int = 0) -> Line:
    """``raw`` without its prefixes."""
    text = _ANSI.sub("", raw).rstrip("\r\n")
    text = _REPEATED.sub("", text)
    if text.startswith("{"):
        text = _from_json(text)
    process = ""
    for _ in range(8):
        for pattern in _OUTER:
            found = pattern.match(text)
            if found and found.end():
                process = _process(found) or process
                text = text[found.end() :]
                break
        else:
            break
    record = _RECORD.match(text)
    if record is None:
        return Line(number, text, process)
    file = record["file"].rpartition("/")[2]
    return Line(number, text[record.end() :], process, record["level"] or "", file, _seconds(record))


def _process(found: re.Match[str]) -> str:
    groups = found.groupdict()
    if groups.get("rank"):
        return f"rank{groups['rank']}"
    name = groups.get("name") or ""
    return f"{name}_{groups['number']}" if groups.get("number") else name.replace(" ", "_")


def _seconds(record: re.Match[str]) -> float | None:
    if record["month"] is None:
        return None
    day = _DAYS_BEFORE[min(max(int(record["month"]), 1), 12) - 1] + int(record["day"])
    return ((day * 24 + int(record["hour"])) * 60 + int(record["minute"])) * 60 + float(record["second"])


def _from_json(text: str) -> str:
    """The message of a JSON record, the whole text where it is none."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for key in _JSON_TEXT:
        value = record.get(key) if isinstance(record, dict) else None
        if isinstance(value, str):
            return _ANSI.sub("", value).rstrip("\r\n")
    return text
