"""A diagnosis as JSON data of schema ``kvroom/1``: sizes in bytes, durations in seconds (see docs/json.md)."""

from __future__ import annotations

from typing import Any

from kvroom.doctor.diagnosis import Diagnosis
from kvroom.doctor.price import Offer, taken_apart
from kvroom.findings.finding import Finding
from kvroom.logs.messages import catalogue
from kvroom.logs.reading import Measured, Reading
from kvroom.logs.serving import Load, Moment
from kvroom.redaction import clean, clean_command
from kvroom.report.as_json import cleaned, pool_data, verdict_data
from kvroom.report.schema import SCHEMA

_LEDGER = ("requested", "weights", "activation", "other", "cuda_graphs", "available")
_MOST_FACTS, _MOST_VALUES = 2000, 50
_ALSO = ("free", "consumed", "graph_estimate", "graph_actual", "checkpoint")


def diagnosis_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """The whole diagnosis, ready for ``json.dumps``; None where the log does not tell."""
    reading = diagnosis.reading
    error = reading.error
    data = {
        "schema": SCHEMA,
        "kind": "diagnosis",
        "source": diagnosis.source or None,
        "reading": reading_data(reading),
        "starts": diagnosis.log.starts,
        "first_error": {"line": error.line, "text": error.text[:2000]} if error else None,
        "findings": [_finding(finding, diagnosis) for finding in diagnosis.findings],
        "remedies": [offer_data(offer) for offer in diagnosis.offers],
        "command": clean_command(diagnosis.command),
        "predicted": [
            {
                "entry": each.entry,
                "low": each.low,
                "expected": each.expected,
                "high": each.high,
                "logged": each.logged,
                "outside": each.outside,
            }
            for each in diagnosis.held
        ],
        "numbers": numbers(reading),
        "verdict": verdict_data(diagnosis.verdict),
        "notes": list(diagnosis.known.notes),
    }
    return {key: cleaned(value) for key, value in data.items()}


def reading_data(reading: Reading) -> dict[str, Any]:
    """What the log says of one start."""
    return {
        "vllm_version": reading.version,
        "engine": reading.engine,
        "model": reading.model,
        "devices": _devices(reading),
        "attention_backend": reading.attention_backend,
        "stage": reading.stage,
        "state": str(reading.state),
        "first_line": reading.first_line,
        "last_line": reading.last_line,
        "ledger": [_entry(reading.measured[name]) for name in _LEDGER if name in reading.measured],
        "sizes": {name: reading.measured[name].value for name in _ALSO if name in reading.measured},
        "pool": {name: getattr(reading.pool, name) for name in reading.pool.__slots__},
        "settings": {name: _plain(value) for name, value in reading.settings.items()},
        "timeline": [
            {"stage": step.stage, "line": step.line, "at": step.at, "seconds": step.seconds}
            for step in reading.timeline
        ],
        "serving": _load(reading.load, reading) if reading.load.count or reading.statuses else None,
        "contradictions": list(reading.contradictions),
    }


def numbers(reading: Reading) -> dict[str, list[int | float]]:
    """Every number of a recognised message under ``message.value``: sizes in bytes, others as printed."""
    found: dict[str, list[int | float]] = {}
    for fact in reading.facts[:_MOST_FACTS]:
        message = catalogue().by_id[fact.id]
        for name in fact.values:
            value: int | float | None = fact.gib(name) if name in message.in_gib else fact.number(name)
            value = fact.size(name) if value is None else value
            if value is not None:
                values = found.setdefault(f"{fact.id}.{name}", [])
                if value not in values and len(values) < _MOST_VALUES:
                    values.append(value)
    return found


def offer_data(offer: Offer) -> dict[str, Any]:
    """A change with the verdict and pool after it, both None where nobody can predict them."""
    after = offer.after
    return {
        "flags": list(offer.flags),
        "why": offer.why,
        "price": offer.price,
        "risk": offer.risk,
        "finding": offer.code or None,
        "verdict": verdict_data(after.verdict) if after else None,
        "pool": pool_data(after.layout, after.pool) if after else None,
    }


def _finding(finding: Finding, diagnosis: Diagnosis) -> dict[str, Any]:
    priced = {offer.flags: offer for offer in diagnosis.offers if offer.flags}
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "title": finding.title,
        "why": finding.why,
        "evidence": [{"line": item.line, "text": item.text} for item in finding.evidence],
        "remedies": [_advice(advice, priced) for advice in finding.advice],
    }


def _advice(advice: str, priced: dict[tuple[str, ...], Offer]) -> dict[str, Any]:
    flags, remark = taken_apart(advice)
    if flags in priced:
        return offer_data(priced[flags])
    return offer_data(Offer(flags, "" if flags else advice, remark))


def _devices(reading: Reading) -> list[dict[str, Any]]:
    if reading.device is None and reading.total_bytes is None:
        return []
    return [
        {
            "name": reading.device,
            "count": reading.gpus,
            "total_bytes": reading.total_bytes,
            "free_bytes": reading.free_bytes,
        }
    ]


def _entry(measured: Measured) -> dict[str, Any]:
    return {
        "entry": measured.name,
        "low": measured.low,
        "expected": measured.value,
        "high": measured.high,
        "basis": "measured",
        "why": f"line {measured.line}: {measured.printed}",
        "ranks": dict(measured.ranks),
    }


def _load(load: Load, reading: Reading) -> dict[str, Any]:
    return {
        "lines": load.count,
        "most_running": load.most_running,
        "most_waiting": load.most_waiting,
        "best_generation_tokens_per_s": load.best_generation,
        "preemptions": load.preemptions,
        "busiest": _moment(load.busiest),
        "last": _moment(load.last),
        "statuses": {str(status): count for status, count in sorted(reading.statuses.items())},
    }


def _moment(moment: Moment | None) -> dict[str, Any] | None:
    return None if moment is None else {name: getattr(moment, name) for name in moment.__slots__}


def _plain(value: Any) -> Any:
    """``value`` where JSON can hold it, else as text."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else clean(str(value))
