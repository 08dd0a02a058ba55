"""A plan as text for a terminal: the verdict first, then the ledger, the pool and what to change.

Colour and bars appear on a terminal only; piped output is plain text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kvroom.ledger.entries import Entry, Ledger
from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Status
from kvroom.plans.plan import Plan
from kvroom.redaction import clean
from kvroom.remedies.remedy import Remedy
from kvroom.report.command import show_command
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_COLOUR = {Status.FITS: "green", Status.TIGHT: "yellow", Status.FAILS: "red", Status.UNKNOWN: "magenta"}
_PART_COLOUR = {
    "weights": "blue",
    "activation": "yellow",
    "other": "magenta",
    "cuda_graphs": "cyan",
    "available": "green",
}


def print_plan(plan: Plan, console: Console, *, explain: bool = False) -> None:
    """Print ``plan``; with ``explain`` every entry's rule and source as well."""
    for part in _parts(plan, console, explain):
        console.print(part, soft_wrap=not isinstance(part, Table))


def _parts(plan: Plan, console: Console, explain: bool) -> Iterator[RenderableType]:
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
        yield _text("\nvLLM will print", style="bold")
        for line in plan.predicted_log:
            yield _text(f"  {line}")
    yield _text(f"\n{_command_title(plan)}", style="bold")
    yield _text(f"  {show_command(plan.command)}")
    if plan.notes or explain:
        yield _text("")
    for note in plan.notes:
        yield _text(f"note: {note}", style="dim")
    if explain:
        yield from _rules(plan)


def _command_title(plan: Plan) -> str:
    after = plan.advice.after or plan.prediction
    words = {Status.FITS: "that starts", Status.TIGHT: "that may start", Status.FAILS: "as it is: it does not start"}
    return f"Command {words.get(after.verdict.status, '')}".rstrip()


def _text(text: str, style: str = "") -> Text:
    """``text`` for a terminal: whoever wrote a part of it, it holds no secret and no control code."""
    return Text(clean(text), style=style)


def _heading(plan: Plan) -> Iterator[RenderableType]:
    setup = plan.prediction.setup
    machine = setup.machine
    if plan.source is not None:
        yield _text(f"{plan.source}:{plan.line or 1}", style="dim")
    where = f"{machine.count} x {machine.device.name}"
    yield _text(f"{setup.args.model} on {where}, vLLM {setup.release}", style="bold")
    verdict = plan.verdict
    at = f" at stage {verdict.stage}" if verdict.stage else ""
    words = {
        Status.FITS: "it starts",
        Status.TIGHT: f"inside the uncertainty: it may fail{at}",
        Status.FAILS: f"it does not start: fails{at}",
        Status.UNKNOWN: "cannot be told",
    }[verdict.status]
    yield Text.from_markup(f"[bold {_COLOUR[verdict.status]}]{verdict.status.upper()}[/]  {escape(words)}")
    yield from _margin(plan)
    if verdict.message:
        yield _text(f"  {verdict.message}")
    if verdict.left_out:
        yield _text(f"  {verdict.left_out}")


def _margin(plan: Plan) -> Iterator[RenderableType]:
    """How near a tight launch is; vLLM's message, which follows, is that of the low end."""
    ledger, pool = plan.prediction.ledger, plan.prediction.pool
    if plan.verdict.status is not Status.TIGHT or ledger is None or pool is None:
        return
    low, expected = (show_bytes(size) for size in (ledger.available.low, ledger.available.expected))
    yield _text(
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
        table.add_row(sign + entry.name, *_figures(entry), str(entry.basis), _text(why), style=style)
    return table


def _figures(entry: Entry) -> tuple[str, str, str]:
    return tuple(f"{value / GIB:.2f}" for value in (entry.low, entry.expected, entry.high))  # type: ignore[return-value]


def _pool(plan: Plan) -> Iterator[RenderableType]:
    pool, layout = plan.prediction.pool, plan.prediction.layout
    if pool is None or layout is None:
        return
    yield _text("\nKV pool", style="bold")
    kinds = Counter(f"{len(group.layers)} {group.spec.kind}" for group in layout.groups)
    groups = ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in kinds.items())
    yield _text(
        f"  {pool.num_blocks:,} blocks of {layout.block_size} tokens, {show_bytes(layout.bytes_per_block)} each"
        f" ({groups} layers)"
    )
    yield _text(
        f"  {pool.tokens:,} tokens; {pool.max_concurrency:.2f} requests of {pool.max_model_len:,} tokens at once"
    )
    yield _text(
        f"  one such request needs {show_bytes(pool.needed_bytes)}; longest context {pool.longest_context:,} tokens"
    )
    settings = plan.prediction.settings
    if pool.fits and settings is not None and 0 < pool.max_concurrency < min(2, settings.max_num_seqs):
        yield _text(
            "  Concurrency is short, not the room for one request: two full-length requests do not fit at once.",
            style="yellow",
        )


def _remedies(plan: Plan) -> Iterator[RenderableType]:
    advice = plan.advice
    if advice.remedies:
        yield _text("\nWhat to change, cheapest first", style="bold")
    for number, remedy in enumerate(advice.remedies, 1):
        yield _text(f"  {number}. {_remedy_line(remedy)}")
        yield _text(f"     {remedy.why}; price: {remedy.price}", style="dim")
    if advice.after is not None and len(advice.combined) > 1:
        yield _text(f"  the changes of the command below together  ->  {_room(advice.after)}")
    for item in advice.impossible:
        yield _text(f"  no help: {item.name}: {item.reason}", style="dim")


def _remedy_line(remedy: Remedy) -> str:
    change = show_command(remedy.flags) if remedy.flags else remedy.name or remedy.why
    return f"{change}  ->  {_room(remedy.after)}"


def _room(after: Prediction) -> str:
    pool = after.pool
    room = f", {pool.tokens:,} tokens, {pool.max_concurrency:.2f} requests" if pool and pool.fits else ""
    return f"{after.verdict.status}{room}"


def _findings(plan: Plan) -> Iterator[RenderableType]:
    if plan.findings:
        yield _text("\nFindings", style="bold")
    for finding in plan.findings:
        yield _text(f"  {finding.severity} {finding.code} {finding.name}: {finding.title}")
        for advice in finding.advice:
            yield _text(f"     {advice}", style="dim")


def _rules(plan: Plan) -> Iterator[RenderableType]:
    prediction = plan.prediction
    yield _text("Rules", style="bold")
    for entry in prediction.ledger or ():
        if entry.source:
            yield _text(f"  {entry.name}: {entry.source}", style="dim")
    if prediction.settings is not None:
        for note in prediction.settings.notes:
            yield _text(f"  {note}", style="dim")
    if prediction.backend is not None:
        yield _text(f"  attention backend {prediction.backend.name}: {prediction.backend.how}", style="dim")
