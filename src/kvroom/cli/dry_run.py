"""``kvroom dry-run``: the same answer from vLLM's own code, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kvroom.cli.options import PASS_ON, PassesOn, shared

if TYPE_CHECKING:
    from rich.console import Console

    from kvroom.cli.jobs import Asked
    from kvroom.plans.plan import Plan


@click.command("dry-run", cls=PassesOn, context_settings=PASS_ON)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="MODEL [VLLM FLAGS]... | -- COMMAND...")
@shared
@click.option("--python", help="An interpreter, or its environment's folder, that holds vLLM.")
def dry_run(args: tuple[str, ...], *, as_json: bool, explain: bool, python: str | None, **asked: Any) -> int:
    """Let vLLM's own code answer: configuration, model, KV specs, profile run and planner on a pretended card.

    It runs in the environment given by --python, in kvroom's own if that holds the release, or in one made by
    `kvroom engine install RELEASE`. Where it stops, the rules answer and a note says at which step.
    Exit code: 0 fits, 1 fails, 2 wrong usage, 3 tight or unknown.
    """
    from kvroom.cli import jobs

    return jobs.exit_code([run_dry(args, jobs.Asked(**asked), python, as_json=as_json, explain=explain)])


def run_dry(args: Sequence[str], asked: Asked, python: str | None, *, as_json: bool, explain: bool) -> Plan:
    """Trace one launch and print it; the plan that was printed."""
    import sys

    from kvroom.cli import jobs
    from kvroom.cli.output import show, write_json
    from kvroom.launches.read import starts_command
    from kvroom.plans.plan import Plan
    from kvroom.tracing.exact import exact_plan

    asked = replace(asked, learned=False)  # vLLM's own code is asked, not a log
    if starts_command(args) or (len(args) == 1 and " " in args[0]):
        plans = [item for item in jobs.many(args, asked).items if isinstance(item, Plan)]
        if len(plans) != 1:
            raise click.UsageError(f"dry-run takes one launch, and there are {len(plans)}.")
        plan = plans[0]
    else:
        plan = jobs.one(args, asked)

    def on_step(name: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{name} ...")
            sys.stderr.flush()

    exact = exact_plan(plan, python=python, offline=asked.offline, on_step=on_step)
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    if as_json:
        from kvroom.report.exact import exact_data

        write_json(exact_data(exact))
        return exact.plan
    from kvroom.report.as_text import print_plan
    from kvroom.report.exact import print_peak

    def draw(console: Console) -> None:
        print_plan(exact.plan, console, explain=explain)
        print_peak(exact, console)

    show(draw)
    return exact.plan
