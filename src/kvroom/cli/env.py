"""``kvroom env``: the record that a good bug report needs."""

from __future__ import annotations

import click

from kvroom.cli.output import write


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    help="text (default), json, or github: a Markdown block that folds, ready to paste into an issue.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def env(*, form: str | None, as_json: bool) -> None:
    """Show the GPUs, versions, limits and variables here, as an issue needs them.

    Nothing private is in it: no host or user name, no home folder, no address; secrets are masked.
    Run it in the environment (and container) that vLLM runs in.
    """
    from kvroom.environment.record import environment_record

    if as_json and form not in {None, "json"}:
        raise click.UsageError(f"--json and --format {form} cannot both be had.")
    record = environment_record()
    if as_json or form == "json":
        import json

        from kvroom.report.environment_json import environment_data

        write(json.dumps(environment_data(record), indent=1, allow_nan=False) + "\n")
    elif form == "github":
        from kvroom.report.environment_text import environment_markdown

        write(environment_markdown(record) + "\n")
    else:
        from rich.console import Console

        from kvroom.report.environment_text import print_environment

        console = Console(highlight=False)
        with console.capture() as printed:
            print_environment(record, console)
        write(printed.get().rstrip("\n") + "\n")
