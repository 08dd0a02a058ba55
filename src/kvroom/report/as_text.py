"""A plan as text for a terminal: the verdict first, then the ledger, the pool and what to change.

Colour and bars appear on a terminal only; piped output is plain text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kvroom.ledger.entries import Entry, Ledger
from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Status
from kvroom.plans.plan import Plan
from kvroom.remedies.remedy import Remedy
from kvroom.report.command import show_command
from kvroom.report.terminal import COLOUR, Part, line, place, print_parts, prose
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from rich.console import Console

_PART_COLOUR = {
    "weights": "blue",
    "activation": "yellow",
    "other": "magenta",
    "cuda_graphs": "cyan",
    "available": "green",
}


def print_plan(plan: Plan, console: Console, *, explain: bool = False) -> None:
    """Print ``plan``; with ``explain`` every entry's rule and source as well."""
    print_parts(_parts(plan, console, explain), console)


def _parts(plan: Plan, console: Console, explain: bool) -> Iterator[Part]:
    yield from _heading(plan)
    ledger = plan.prediction.ledger
    if ledger is not None:
        if console.is_terminal:
            yield _bar(ledger, min(console.width, 100) - 4, "\u2588" if console.encoding.startswith("utf") else "#")
        yield _ledger_table(ledger, plan.prediction.setup.machine.device.total_bytes, explain)
    yield from _pool(plan)
    yield from _remedies(plan)
    yield from _findings(plan)
    if plan.predicted_log:
        yield line("\nvLLM will print", "bold")
        for logged in plan.predicted_log:
            yield line(f"  {logged}")
    yield line(f"\n{_command_title(plan)}", "bold")
    yield line(f"  {show_command(plan.command)}")
    if plan.notes or explain:
        yield line("")
    for note in plan.notes:
        yield prose("note: ", note, "dim")
    if explain:
        yield from _rules(plan)


def _command_title(plan: Plan) -> str:
    after = plan.advice.after or plan.prediction
    words = {Status.FITS: "that starts", Status.TIGHT: "that may start", Status.FAILS: "as it is: it does not start"}
    return f"Command {words.get(after.verdict.status, '')}".rstrip()


def _heading(plan: Plan) -> Iterator[Part]:
    setup = plan.prediction.setup
    machine = setup.machine
    if plan.source is not None:
        yield line(place(plan.source, plan.line), "dim")
    where = f"{machine.count} x {machine.device.name}"
    yield line(f"{setup.args.model} on {where}, vLLM {setup.release}", "bold")
    verdict = plan.verdict
    at = f" at stage {verdict.stage}" if verdict.stage else ""
    words = {
        Status.FITS: "it starts",
        Status.TIGHT: f"inside the uncertainty: it may fail{at}",
        Status.FAILS: f"it does not start: fails{at}",
        Status.UNKNOWN: "cannot be told",
    }[verdict.status]
    yield Text.assemble((verdict.status.upper(), f"bold {COLOUR[verdict.status]}"), "  ", words)
    yield from _margin(plan)
    if verdict.message:
        yield line(f"  {verdict.message}")
    if verdict.left_out:
        yield prose("  ", verdict.left_out)


def _margin(plan: Plan) -> Iterator[Part]:
    """How near a tight launch is; vLLM's message, which follows, is that of the low end."""
    ledger, pool = plan.prediction.ledger, plan.prediction.pool
    if plan.verdict.status is not Status.TIGHT or ledger is None or pool is None:
        return
    low, expected = (show_bytes(size) for size in (ledger.available.low, ledger.available.expected))
    yield line(
        f"  {expected} expected for the KV cache, {low} at the low end; one request needs"
        f" {show_bytes(pool.needed_bytes)}. At the low end vLLM says:"
    )


def _bar(ledger: Ledger, width: int, block: str) -> Text:
    """The budget as a bar of blocks, one colour a part; a launch over its budget fills it with what it needs."""
    bar = Text("  ")
    parts = [entry for entry in ledger if entry.name != "requested"]
    whole = max(ledger.requested.expected, sum(max(entry.expected, 0) for entry in parts), 1)
    for entry in parts:
        cells = max(0, round(entry.expected / whole * width))
        bar.append(block * cells, style=_PART_COLOUR[entry.name])
    return bar


def _ledger_table(ledger: Ledger, total: int, explain: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("GiB per GPU")
    for name in ("low", "expected", "high"):
        table.add_column(name, justify="right")
    table.add_column("basis")
    table.add_column("why", overflow="fold")
    table.add_row("device total", "", f"{total / GIB:.2f}", "", "", "")
    for entry in ledger:
        sign = "" if entry.name in {"requested", "available"} else "- "
        style = "bold" if entry.name == "available" else ""
        why = f"{entry.why} [{entry.source}]" if explain and entry.source else entry.why
        table.add_row(sign + entry.name, *_figures(entry), str(entry.basis), line(why), style=style)
    return table


def _figures(entry: Entry) -> tuple[str, str, str]:
    return tuple(f"{value / GIB:.2f}" for value in (entry.low, entry.expected, entry.high))  # type: ignore[return-value]


def _pool(plan: Plan) -> Iterator[Part]:
    pool, layout = plan.prediction.pool, plan.prediction.layout
    if pool is None or layout is None:
        return
    yield line("\nKV pool", "bold")
    kinds = Counter(f"{len(group.layers)} {group.spec.kind}" for group in layout.groups)
    groups = ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in kinds.items())
    yield line(
        f"  {pool.num_blocks:,} blocks of {layout.block_size} tokens, {show_bytes(layout.bytes_per_block)} each"
        f" ({groups} layers)"
    )
    yield line(
        f"  {pool.tokens:,} tokens; {pool.max_concurrency:.2f} requests of {pool.max_model_len:,} tokens at once"
    )
    yield line(
        f"  one such request needs {show_bytes(pool.needed_bytes)}; longest context {pool.longest_context:,} tokens"
    )
    settings = plan.prediction.settings
    if pool.fits and settings is not None and 0 < pool.max_concurrency < min(2, settings.max_num_seqs):
        yield line(
            "  Concurrency is short, not the room for one request: two full-length requests do not fit at once.",
            "yellow",
        )


def _remedies(plan: Plan) -> Iterator[Part]:
    advice = plan.advice
    if advice.remedies:
        yield line("\nWhat to change, cheapest first", "bold")
    for number, remedy in enumerate(advice.remedies, 1):
        yield prose(f"  {number}. ", _remedy_line(remedy))
        yield prose("     ", f"{remedy.why}; price: {remedy.price}", "dim")
    if advice.after is not None and len(advice.combined) > 1:
        yield line(f"  the changes of the command below together  ->  {_room(advice.after)}")
    for item in advice.impossible:
        yield prose("  no help: ", f"{item.name}: {item.reason}", "dim")


def _remedy_line(remedy: Remedy) -> str:
    change = show_command(remedy.flags) if remedy.flags else remedy.name or remedy.why
    return f"{change}  ->  {_room(remedy.after)}"


def _room(after: Prediction) -> str:
    pool = after.pool
    room = f", {pool.tokens:,} tokens, {pool.max_concurrency:.2f} requests" if pool and pool.fits else ""
    return f"{after.verdict.status}{room}"


def _findings(plan: Plan) -> Iterator[Part]:
    if plan.findings:
        yield line("\nFindings", "bold")
    for finding in plan.findings:
        yield prose(f"  {finding.severity} ", f"{finding.code} {finding.name}: {finding.title}")
        for advice in finding.advice:
            yield prose("     ", advice, "dim")


def _rules(plan: Plan) -> Iterator[Part]:
    prediction = plan.prediction
    yield line("Rules", "bold")
    for entry in prediction.ledger or ():
        if entry.source:
            yield line(f"  {entry.name}: {entry.source}", "dim")
    if prediction.settings is not None:
        for note in prediction.settings.notes:
            yield line(f"  {note}", "dim")
    if prediction.backend is not None:
        yield line(f"  attention backend {prediction.backend.name}: {prediction.backend.how}", "dim")
