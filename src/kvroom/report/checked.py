"""What ``kvroom check`` says of files: as JSON items, and as text, in full or one line a launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kvroom.launches.launch import Unanswered
from kvroom.ledger.verdict import Status
from kvroom.plans.check import Item
from kvroom.plans.plan import Plan
from kvroom.report.as_json import cleaned, plan_data
from kvroom.report.as_text import print_plan
from kvroom.report.command import show_command
from kvroom.report.schema import SCHEMA
from kvroom.report.terminal import COLOUR, Part, line, place, print_parts, prose

if TYPE_CHECKING:
    from rich.console import Console

_EMPTY_PLAN: dict[str, Any] = {
    "model_source": None,
    "vllm_version": None,
    "devices": [],
    "attention_backend": None,
    "settings": None,
    "ledger": [],
    "pool": None,
}


def item_data(item: Item) -> dict[str, Any]:
    """One item as JSON: a plan, a plan whose verdict is ``unknown``, or ``unreadable`` with the problem."""
    if isinstance(item, Plan):
        return plan_data(item)
    if isinstance(item, Unanswered):
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "kind": "plan",
            "model": item.name,
            **_EMPTY_PLAN,
            "verdict": {"status": "unknown", "stage": None, "message": item.reason, "left_out": None},
            "remedies": [],
            "impossible": [],
            "findings": [],
            "command": [],
            "predicted_log": [],
            "notes": [item.cure] if item.cure else [],
        }
    else:
        data = {"schema": SCHEMA, "kind": "unreadable", "problem": item.problem, "cure": item.cure}
    return {key: cleaned(value) for key, value in {**data, "source": item.source, "line": item.line}.items()}


def print_items(items: Sequence[Item], console: Console, *, explain: bool, short: bool) -> None:
    """Print ``items``; ``short`` for many files, with one line a launch and what is wrong with it."""
    for number, item in enumerate(items):
        if isinstance(item, Plan) and not short:
            if number:
                console.print()
            print_plan(item, console, explain=explain)
        else:
            if number and not short:
                console.print()
            print_parts(_short(item), console)
    if short:
        print_parts([line(f"\n{tally(items)}", "bold")], console)


def tally(items: Sequence[Item]) -> str:
    """How many launches fit, fail, ... and how many files or parts could not be read.

    >>> tally([])
    '0 launches'
    """
    words = []
    plans = [item for item in items if isinstance(item, Plan)]
    for status in Status:
        count = sum(plan.verdict.status is status for plan in plans)
        count += sum(isinstance(item, Unanswered) for item in items) if status is Status.UNKNOWN else 0
        words += [f"{count} {status}"] if count else []
    launches = sum(isinstance(item, Plan | Unanswered) for item in items)
    unread = len(items) - launches
    words += [f"{unread} not readable"] if unread else []
    return f"{launches} launch{'es' if launches != 1 else ''}" + (f": {', '.join(words)}" if words else "")


def _short(item: Item) -> Iterator[Part]:
    if isinstance(item, Plan):
        yield from _short_plan(item)
        return
    where = place(item.source, item.line) if item.source else f"line {item.line}"
    if isinstance(item, Unanswered):
        yield prose("UNKNOWN  ", f"{where}  {f'{item.name}: ' if item.name else ''}{item.reason}")
    else:
        yield prose("UNREADABLE  ", f"{where}  {item.problem}")
    if item.cure:
        yield prose("     ", item.cure, "dim")


def _short_plan(plan: Plan) -> Iterator[Part]:
    setup = plan.prediction.setup
    verdict = plan.verdict
    machine = setup.machine
    where = f"{setup.args.model} on {machine.count} x {machine.device.name}, vLLM {setup.release}"
    pool = plan.prediction.pool
    room = ""
    if pool is not None and pool.fits and verdict.status is not Status.FAILS:
        room = f": {pool.tokens:,} tokens, {pool.max_concurrency:.2f} x {pool.max_model_len:,}"
    at = f" at stage {verdict.stage}" if verdict.stage else ""
    head = f"{verdict.status.upper()}  {place(plan.source or '', plan.line)}  {where}{room}{at}"
    yield line(head, COLOUR[verdict.status])
    if verdict.status is not Status.FITS:
        said = (verdict.message or verdict.left_out or "").split("\n")[0]
        if said:
            yield prose("     ", said)
        if plan.advice.remedies:
            best = plan.advice.remedies[0]
            cure = show_command(best.flags) if best.flags else best.name or best.why
            yield prose("     ", f"{cure}  ->  {best.after.verdict.status}", "dim")
    for finding in plan.findings:
        if finding.severity != "note":
            yield prose(f"     {finding.severity} ", f"{finding.code} {finding.name}: {finding.title}")
