"""``kvroom env``: the record that a good bug report needs."""

from __future__ import annotations

import click

from kvroom.cli.options import chosen, formats
from kvroom.cli.output import show, write, write_json


@click.command()
@formats
def env(*, form: str | None, as_json: bool) -> None:
    """Show the GPUs, versions, limits and variables here, as an issue needs them.

    Nothing private is in it: no host or user name, no home folder, no address; secrets are masked.
    Run it in the environment (and container) that vLLM runs in.
    """
    from kvroom.environment.record import environment_record

    form = chosen(form, as_json)
    record = environment_record()
    if form == "json":
        from kvroom.report.environment_json import environment_data

        write_json(environment_data(record))
    elif form == "github":
        from kvroom.report.environment_text import environment_markdown

        write(environment_markdown(record) + "\n")
    else:
        from kvroom.report.environment_text import print_environment

        show(lambda console: print_environment(record, console))
