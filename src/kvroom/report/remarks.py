"""What a check has to say, each with the file and line it is about: what SARIF and GitHub's annotations are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvroom.errors import KvroomError
from kvroom.findings.finding import Evidence
from kvroom.launches.launch import Unanswered
from kvroom.ledger.verdict import Status
from kvroom.plans.check import Item
from kvroom.plans.plan import Plan
from kvroom.redaction import clean
from kvroom.report.command import show_command
from kvroom.vllm.flags import flags_for
from kvroom.vllm.items import read_items
from kvroom.vllm.rules import rules_for

VERDICTS = {
    "launch-fails": "The launch does not start.",
    "launch-tight": "Whether the launch starts lies inside the uncertainty.",
    "launch-unknown": "Something is missing from the file, so that nothing can be said of the launch.",
    "file-unreadable": "The file, or a part of it, cannot be read.",
}
"""Remarks that are no finding, with what they stand for."""
_LEVELS = {Status.FAILS: "error", Status.TIGHT: "warning", Status.UNKNOWN: "warning"}
_DECIDES = {"kv_sizing": "max_model_len", "weight_load": "model", "distributed_init": "tensor_parallel_size"}
"""The argument that is shown for a launch that stops at a stage."""
_OPTION = re.compile(r"--[a-z][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to say about one line."""

    source: str
    line: int
    rule: str
    """A finding's code, or a key of ``VERDICTS``."""
    level: str
    """``error``, ``warning`` or ``note``."""
    title: str
    message: str


def remarks_on(items: Sequence[Item]) -> list[Remark]:
    """The remarks on ``items``, in their order, cleaned of secrets; a launch that fits without findings has none."""
    return [
        Remark(each.source, max(1, each.line), each.rule, each.level, clean(each.title), clean(each.message))
        for item in items
        for each in _remarks(item)
    ]


def _remarks(item: Item) -> Iterator[Remark]:
    if isinstance(item, Plan):
        yield from _of_plan(item)
    elif isinstance(item, Unanswered):
        text = f"{item.reason} {item.cure}".strip()
        yield Remark(item.source, item.line, "launch-unknown", "warning", f"{item.name}: unknown", text)
    else:
        text = f"{item.problem} {item.cure}".strip()
        yield Remark(item.source, item.line, "file-unreadable", "error", "not readable", text)


def _of_plan(plan: Plan) -> Iterator[Remark]:
    source, verdict = plan.source or "", plan.verdict
    where = _lines_of_arguments(plan)
    if verdict.status is not Status.FITS:
        setup = plan.prediction.setup
        name = f"{setup.args.model} on {setup.machine.count} x {setup.machine.device.name}, vLLM {setup.release}"
        at = f" at stage {verdict.stage}" if verdict.stage else ""
        said = (verdict.message or verdict.left_out or "").split("\n")[0]
        cures = plan.advice.remedies[:1]
        cure = f" Try {show_command(cures[0].flags) if cures[0].flags else cures[0].name}." if cures else ""
        line = where.get(_DECIDES.get(verdict.stage or "", ""), plan.line or 1)
        title = f"{verdict.status}{at}"
        yield Remark(source, line, f"launch-{verdict.status}", _LEVELS[verdict.status], title, f"{name}: {said}{cure}")
    for finding in plan.findings:
        line = _line_of(finding.evidence, plan, where)
        text = " ".join([finding.title, finding.why, *finding.advice])
        yield Remark(source, line, finding.code, str(finding.severity), f"{finding.code} {finding.name}", text)


def _line_of(evidence: Sequence[Evidence], plan: Plan, where: dict[str, int]) -> int:
    """The line that shows a finding: its own, that of its flag or variable, else that of the launch."""
    for each in evidence:
        if each.line:
            return each.line
        option = _OPTION.match(each.text)
        if option and option[0][2:].replace("-", "_") in where:
            return where[option[0][2:].replace("-", "_")]
        pod = plan.launch.pod if plan.launch else None
        name = each.text.split("=", 1)[0]
        if pod is not None and pod.lines.get(name):
            return pod.lines[name]
    return plan.line or 1


def _lines_of_arguments(plan: Plan) -> dict[str, int]:
    """The line of each argument, by vLLM's name; empty where the words have no lines of their own."""
    launch = plan.launch
    if launch is None or len(launch.token_lines) != len(launch.tokens):
        return {}
    release = plan.prediction.setup.release
    try:
        items = read_items(launch.tokens, flags_for(release), rules_for(release))
    except KvroomError:
        return {}
    found = {}
    for item in items:
        name = item.flag.name if item.flag else "model" if item.kind == "positional" else item.option.lstrip("-")
        found[name.replace("-", "_")] = launch.token_lines[item.start]
    return found
