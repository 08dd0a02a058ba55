"""A verification as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kvroom.errors import short
from kvroom.report.terminal import Part, line, print_parts, prose
from kvroom.server.check import Check, Held
from kvroom.server.figures import Spread
from kvroom.server.limits import TARGET_PERCENTILE, Limit, Targets
from kvroom.server.ramp import Ramp
from kvroom.server.step import Step
from kvroom.server.verify import Verification
from kvroom.server.workload import Workload

if TYPE_CHECKING:
    from rich.console import Console

_STYLE = {Held.HOLDS: "green", Held.FAILS: "red", Held.UNKNOWN: "magenta"}
_DEFINED = "TTFT: time to the first token; TPOT: (latency - TTFT) / (output tokens - 1); medians, and 95th percentiles"
_HEAD = (
    "at once", "served", "failed", "TTFT ms", "p95", "TPOT ms", "p95", "ITL p99", "tokens/s", "running", "waiting",
    "KV use", "preempted", "prefix hits",
)  # fmt: skip


def print_verification(found: Verification, console: Console) -> None:
    """Print ``found``: the verdict, what was checked, the load, and what to change."""
    print_parts(_parts(found), console)


def _parts(found: Verification) -> Iterator[Part]:
    release = f", vLLM {found.release}" if found.release else ""
    model = f": {short(found.model)}" if found.model else ""
    yield line(f"{found.url}{release}{model}", "bold")
    yield line(*verdict(found))
    yield line("")
    width = max(len(check.name) for check in found.checks)
    for check in found.checks:
        yield from _check(check, width)
    if found.ramp is not None and found.workload is not None:
        yield from _ramp(found.ramp, found.workload, found.targets, chat=found.chat)
    for note in found.notes:
        yield prose("note: ", note, "dim")


def verdict(found: Verification) -> tuple[str, str]:
    """The verdict in a line, and its colour."""
    failing = [check.name for check in found.checks if check.held is Held.FAILS]
    sent = f"{found.requests_sent:,} requests sent"
    if failing:
        return f"DOES NOT HOLD  {', '.join(failing)}; {sent}", "bold red"
    open_ones = [check.name for check in found.checks if check.held is Held.UNKNOWN]
    rest = f"; not known: {', '.join(open_ones)}" if open_ones else ""
    return f"HOLDS  all that was tried{rest}; {sent}", "bold green"


def _check(check: Check, width: int) -> Iterator[Part]:
    lead = f"  {check.held:<8}{check.name:<{width}}  "
    yield prose(lead, check.seen, _STYLE[check.held] if check.held is not Held.HOLDS else "")
    inner = " " * len(lead)
    if check.why:
        yield prose(inner, check.why, "dim")
    if check.cure and check.held is not Held.HOLDS:
        yield prose(inner, f"-> {check.cure}")


def _ramp(ramp: Ramp, workload: Workload, targets: Targets, *, chat: bool) -> Iterator[Part]:
    yield line(f"\nLoad: {about(workload)}, {'chat' if chat else 'completions'}, streamed", "bold")
    if wanted := show_targets(targets):
        yield line(f"  target: {wanted}")
    if ramp.steps:
        yield _table(ramp.steps)
        yield prose(
            "  ",
            _DEFINED,
            "dim",
        )
    yield from _limit(ramp.limit, ramp.best)


def about(workload: Workload) -> str:
    """The load in a few words."""
    given, written = workload.mean
    if workload.source:
        jobs = f"{len(workload.jobs):,} requests of {workload.source}"
        return f"{jobs}, on average {given:,.0f} tokens in and {written:,.0f} out"
    return f"{given:,.0f} tokens in, {written:,.0f} out"


def show_targets(targets: Targets) -> str:
    """The latency targets in words."""
    parts = [
        f"{name} below {value * 1000:,.0f} ms"
        for name, value in (("TTFT", targets.ttft), ("TPOT", targets.tpot))
        if value is not None
    ]
    return f"{' and '.join(parts)} for {TARGET_PERCENTILE} of 100 requests" if parts else ""


def _table(steps: Sequence[Step]) -> Table:
    table = Table(box=None, pad_edge=True, padding=(0, 1))
    for name in _HEAD:
        table.add_column(name, justify="right")
    for step in steps:
        failed = sum(count for _, count in step.failures)
        table.add_row(*(Text(cell) for cell in cells(step)), style="red" if failed else "")
    return table


def cells(step: Step) -> tuple[str, ...]:
    """The figures of a step, as the table shows them."""
    use, hits = step.kv_use, step.prefix_hit_rate
    return (
        "trace" if step.concurrency is None else str(step.concurrency),
        str(len(step.done)),
        ", ".join(f"{count} {kind}" for kind, count in step.failures) or "0",
        *_two(step.ttft),
        *_two(step.tpot),
        "-" if step.itl is None else f"{step.itl.at(99) * 1000:,.1f}",
        f"{step.output_rate:,.1f}",
        *("-" if value is None else str(value) for value in (step.running, step.waiting)),
        "-" if use is None else f"{use:.0%}",
        "-" if (number := step.counted("preemptions")) is None else str(number),
        "-" if hits is None else f"{hits:.0%}",
    )


def _two(spread: Spread | None) -> tuple[str, str]:
    return ("-", "-") if spread is None else (f"{spread.median * 1000:,.1f}", f"{spread.at(95) * 1000:,.1f}")


def _limit(limit: Limit, best: Step | None) -> Iterator[Part]:
    yield line("")
    at = f" at {limit.concurrency} at once" if limit.concurrency else ""
    if limit.of_server:
        yield prose("  ", f"First limit: {limit.cause}{at}: {limit.evidence}", "yellow")
        for also in limit.also:
            yield prose("    also: ", also)
    else:
        yield prose("  ", f"No limit of the server was met: {limit.evidence}")
    if best is not None and best.concurrency is not None:
        yield prose("  ", f"Served in full up to {best.concurrency} at once: {best.output_rate:,.1f} output tokens/s")
    if limit.changes:
        yield line("\nWhat to change, one at a time", "bold")
    for number, change in enumerate(limit.changes, 1):
        price = f"; price: {change.price}" if change.price else ""
        flags = f"{' '.join(change.flags)}: " if change.flags else ""
        yield prose(f"  {number}. ", f"{flags}{change.why}{price}")
