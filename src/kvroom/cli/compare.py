"""``kvroom compare``: what changed between two starts."""

from __future__ import annotations

import click

from kvroom.cli.options import chosen, formats
from kvroom.cli.output import show, write, write_json


@click.command()
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="GOOD BAD | GOOD -- COMMAND... | BOTH")
@click.option("--gpu", help="The card, where the logs do not say, e.g. 'RTX 4090' or '2x H100'.")
@click.option("--model", help="The model, where the logs do not say.")
@click.option("--offline", is_flag=True, help="Read nothing from the hub.")
@formats
def compare(
    args: tuple[str, ...], *, gpu: str | None, model: str | None, offline: bool, form: str | None, as_json: bool
) -> int:
    """Compare two logs, or a log and a command: what differs, what moved, and what moved it.

    GOOD and BAD are logs of vLLM; either may be a command in quotes, and BAD a command after `--`.
    One file that holds both runs is compared with itself: its last two starts.

    Exit code: 0 the same within noise, 1 different, 2 wrong usage.
    """
    from kvroom.compare.inputs import compared

    form = chosen(form, as_json)
    comparison = compared(args, gpu=gpu, model=model, offline=offline)
    if form == "json":
        from kvroom.report.comparison_json import comparison_data

        write_json(comparison_data(comparison))
    elif form == "github":
        from kvroom.report.comparison_text import comparison_markdown

        write(comparison_markdown(comparison) + "\n")
    else:
        from kvroom.report.comparison_text import print_comparison

        show(lambda console: print_comparison(comparison, console))
    return 0 if comparison.same else 1
