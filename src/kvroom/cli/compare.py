"""``kvroom compare``: what changed between two starts."""

from __future__ import annotations

import click

from kvroom.cli.output import console_for, write


@click.command()
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="GOOD BAD | GOOD -- COMMAND... | BOTH")
@click.option("--gpu", help="The card, where the logs do not say, e.g. 'RTX 4090' or '2x H100'.")
@click.option("--model", help="The model, where the logs do not say.")
@click.option("--offline", is_flag=True, help="Read nothing from the hub.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    help="text (default), json, or github: Markdown, ready to paste into an issue.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def compare(
    args: tuple[str, ...], *, gpu: str | None, model: str | None, offline: bool, form: str | None, as_json: bool
) -> int:
    """Compare two logs, or a log and a command: what differs, what moved, and what moved it.

    GOOD and BAD are logs of vLLM; either may be a command in quotes, and BAD a command after `--`.
    One file that holds both runs is compared with itself: its last two starts.

    Exit code: 0 the same within noise, 1 different, 2 wrong usage.
    """
    from kvroom.compare.inputs import compared

    if as_json and form not in {None, "json"}:
        raise click.UsageError(f"--json and --format {form} cannot both be had.")
    comparison = compared(args, gpu=gpu, model=model, offline=offline)
    if as_json or form == "json":
        import json

        from kvroom.report.comparison_json import comparison_data

        write(json.dumps(comparison_data(comparison), indent=1, allow_nan=False) + "\n")
    elif form == "github":
        from kvroom.report.comparison_text import comparison_markdown

        write(comparison_markdown(comparison) + "\n")
    else:
        from kvroom.report.comparison_text import print_comparison

        console = console_for()
        with console.capture() as printed:
            print_comparison(comparison, console)
        write(printed.get())
    return 0 if comparison.same else 1
