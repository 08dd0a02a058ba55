"""What hardware holds a need, as text: a table, cheapest first, what comes near, the command of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from kvroom.ledger.verdict import Status
from kvroom.report.command import show_command
from kvroom.report.terminal import Part, line, print_parts, prose
from kvroom.sizing.answer import Answer
from kvroom.sizing.option import Option
from kvroom.sizing.search import UNTIMED
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from rich.console import Console


def print_size(answer: Answer, notes: Sequence[str], console: Console, *, top: int) -> None:
    """Print the first ``top`` options of ``answer``."""
    print_parts(_parts(answer, notes, top), console)


def _parts(answer: Answer, notes: Sequence[str], top: int) -> Iterator[Part]:
    need, problem = answer.problem.need, answer.problem
    name = problem.base.args.model
    yield line(
        f"{name}: {need.concurrency:,} request{'s' * (need.concurrency > 1)} of {need.held:,} tokens at once, "
        f"vLLM {problem.base.release}",
        "bold",
    )
    yield prose("  ", f"at once: {need.why}; longest request {need.context:,} tokens{_targets(answer)}")
    shown = answer.options[:top]
    if not shown:
        yield line(f"NONE  no hardware that was searched holds this ({_searched(answer)})", "bold red")
    else:
        order = f"by price{_currency(answer)}" if shown[0].price is not None else "fewest GPUs first, then least memory"
        yield line(f"\nWhat holds it, cheapest first ({order})", "bold")
        yield _table(answer, shown)
        rest = len(answer.options) - len(shown)
        if rest:
            yield line(f"{rest} more: --top {len(answer.options)}", "dim")
    yield from _nearest(answer)
    if shown:
        yield line("\nCommands", "bold")
    for number, option in enumerate(shown, 1):
        with_checkpoint = f"  # with a {option.weights} checkpoint" if option.other_checkpoint else ""
        yield line(f"  {number}. {show_command(('vllm', 'serve', *option.tokens))}{with_checkpoint}")
    yield line(f"\n{_searched(answer)}", "dim")
    for note in notes:
        yield prose("note: ", note, "dim")


def _targets(answer: Answer) -> str:
    need = answer.problem.need
    words = [f"TTFT within {need.ttft:g} s"] if need.ttft else []
    words += [f"TPOT within {1000 * need.tpot:g} ms"] if need.tpot else []
    return f"; {', '.join(words)}" if words else ""


def _currency(answer: Answer) -> str:
    return f" in {answer.prices.currency} an hour" if answer.prices.currency else " an hour"


def _searched(answer: Answer) -> str:
    found = answer.found
    return (
        f"{found.judged:,} candidates through the ledger and {found.ruled_out:,} ruled out by their size, on "
        f"{answer.cards} card{'s' * (answer.cards != 1)}, up to {answer.problem.most} GPUs"
    )


def _table(answer: Answer, shown: Sequence[Option]) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    timed = any(option.speed is not None for option in shown)
    priced = any(option.price is not None for option in shown)
    grid.add_column("", justify="right")
    for name in ("GPUs", "spread", "weights", "KV cache"):
        grid.add_column(name)
    names = ["holds", "surely", "margin", "spare a GPU"]
    names += ["TTFT", "TPOT", "tokens/s"] if timed else []
    names += [f"{answer.prices.currency or 'price'}/h"] if priced else []
    for name in names:
        grid.add_column(name, justify="right")
    for number, option in enumerate(shown, 1):
        nodes = f" in {option.layout.nodes} nodes" if option.layout.nodes > 1 else ""
        cells = [
            f"{number}.",
            f"{option.gpus} x {option.device}{nodes}",
            option.layout.label(),
            option.weights,
            option.kv,
            _count(option.room),
            _count(option.room_low),
            f"{100 * (option.room_low / answer.problem.need.concurrency - 1):+.0f} %"
            if math.isfinite(option.room_low)
            else "-",
            show_bytes(option.spare_bytes),
        ]
        if timed:
            cells += _speed(option)
        if priced:
            cells.append("" if option.price is None else f"{option.price:.2f}")
        grid.add_row(*cells)
    return grid


def _count(room: float) -> str:
    return f"{room:,.1f}" if math.isfinite(room) else "any"


def _speed(option: Option) -> list[str]:
    speed = option.speed
    if speed is None:
        return ["?", "?", "?"]
    return [
        f"{1000 * speed.ttft:,.0f} ms",
        f"{1000 * speed.tpot:.1f} ({1000 * speed.tpot_low:.1f}-{1000 * speed.tpot_high:.1f}) ms",
        f"{speed.tokens_per_second:,.0f}",
    ]


def _nearest(answer: Answer) -> Iterator[Part]:
    for miss in answer.nearest:
        stored = f", weights {miss.weights}, KV cache {miss.kv}"
        yield prose(
            "  near: ",
            f"{miss.gpus} x {miss.device} ({miss.layout.label()}{stored}): {lacks(miss, answer)}",
            "yellow",
        )


def lacks(miss: Option, answer: Answer) -> str:
    """What an option that misses lacks, in words."""
    need = answer.problem.need
    if miss.status is Status.FITS and miss.speed is not None:
        late = []
        if need.tpot and miss.speed.tpot > need.tpot:
            late.append(f"TPOT {1000 * miss.speed.tpot:.1f} ms, {1000 * (miss.speed.tpot - need.tpot):.1f} ms too slow")
        if need.ttft and miss.speed.ttft > need.ttft:
            late.append(f"TTFT {miss.speed.ttft:.2f} s, {miss.speed.ttft - need.ttft:.2f} s too slow")
        return "; ".join(late) or "too slow for the rate"
    if miss.status is Status.TIGHT and miss.message == UNTIMED:
        return f"holds {miss.room_low:,.1f}, but {UNTIMED}"
    if miss.status is Status.TIGHT:
        return f"holds {miss.room:,.1f} as expected but {miss.room_low:,.1f} at the low end: inside the uncertainty"
    if miss.lacks_bytes:
        holds = f"holds {miss.room:,.1f} of {need.concurrency:,}; " if miss.room else ""
        return f"{holds}{show_bytes(miss.lacks_bytes)} a GPU too small"
    return (miss.message or "vLLM refuses it").splitlines()[0]
