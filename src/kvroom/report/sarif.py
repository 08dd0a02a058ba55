"""A check as SARIF 2.1.0, which code-scanning pages and editors read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvroom.findings.catalogue import all_rules
from kvroom.plans.check import Item
from kvroom.report.remarks import VERDICTS, Remark, remarks_on
from kvroom.version import __version__

SCHEMA_ADDRESS = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_data(items: Sequence[Item]) -> dict[str, Any]:
    """The remarks on ``items`` as one run; only the rules that it uses are described."""
    remarks = remarks_on(items)
    used = list(dict.fromkeys(remark.rule for remark in remarks))
    return {
        "$schema": SCHEMA_ADDRESS,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "kvroom", "version": __version__, "rules": _rules(used)}},
                "columnKind": "unicodeCodePoints",
                "results": [_result(remark, used.index(remark.rule)) for remark in remarks],
            }
        ],
    }


def _rules(used: Sequence[str]) -> list[dict[str, Any]]:
    known = {rule.code: rule for rule in all_rules()}
    found = []
    for name in used:
        rule = known.get(name)
        if rule is None:
            found.append({"id": name, "shortDescription": {"text": VERDICTS[name]}})
            continue
        found.append(
            {
                "id": rule.code,
                "name": rule.name,
                "shortDescription": {"text": rule.summary},
                "help": {"text": f"kvroom rule {rule.code}", "markdown": rule.explanation},
                "defaultConfiguration": {"level": str(rule.severity)},
            }
        )
    return found


def _result(remark: Remark, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": remark.rule,
        "ruleIndex": rule,
        "level": remark.level,
        "message": {"text": f"{remark.title}: {remark.message}"},
    }
    if remark.source and remark.source != "-":
        result["locations"] = [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _address(remark.source)},
                    "region": {"startLine": remark.line},
                }
            }
        ]
    return result


def _address(source: str) -> str:
    """A path as a relative or absolute address, with what addresses may not hold escaped.

    >>> _address("./my deploy/vllm.yaml")
    'my%20deploy/vllm.yaml'
    """
    from urllib.parse import quote

    path = source.replace("\\", "/").removeprefix("./")
    return ("file://" if path.startswith("/") else "") + quote(path)
