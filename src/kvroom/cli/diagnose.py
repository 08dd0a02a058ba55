"""``kvroom diagnose``: what a log says, why the start failed, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvroom.cli.options import chosen, formats, variables
from kvroom.cli.output import show, write, write_file, write_json

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("logs", nargs=-1, metavar="[LOG]...")
@click.option("--command", help="The launch command of the log, for what the log does not show.")
@click.option("--model", help="The model, where the log does not name it or names a private path.")
@click.option("--gpu", help="The card, e.g. 'RTX 4090' or '2x H100'; logs seldom name it.")
@click.option("--gpu-memory", help="Total memory of one card, where it differs, e.g. 23.6GiB.")
@click.option("--vllm", help="The release, where the log does not say it.")
@click.option("--env", multiple=True, help="An environment variable of the launch, NAME=VALUE.")
@click.option("--offline", is_flag=True, help="Read nothing from the hub.")
@click.option("--all", "every", is_flag=True, help="Every start in the log, not only the last.")
@click.option("--follow", is_flag=True, help="Wait for a log that is being written until its start is decided.")
@click.option("--share", type=click.Path(dir_okay=False), help="Write a cleaned excerpt for a public ticket to a file.")
@formats
@click.option("--explain", is_flag=True, help="Show the timeline, the settings and every recognised line.")
def diagnose(
    logs: tuple[str, ...],
    *,
    env: tuple[str, ...],
    every: bool,
    follow: bool,
    share: str | None,
    form: str | None,
    as_json: bool,
    explain: bool,
    **said: str | bool | None,
) -> int:
    """Read a vLLM log (a file, or `-` for standard input) and say what stopped it and what to change.

    Works on files, docker and kubectl logs, journald and pasted excerpts, packed or not.
    Exit code: 0 healthy, 1 a problem was found, 2 wrong usage, 3 the log does not tell.
    """
    from kvroom.cli.inputs import diagnoses_of

    form = chosen(form, as_json)
    found = diagnoses_of(logs, said, variables(env), every=every, follow=follow)
    if share is not None:
        from kvroom.report.diagnosis_markdown import diagnosis_markdown

        text = "\n".join(diagnosis_markdown(each, excerpt=True) for each in found)
        write_file(share, text, not_over=[log for log in logs if log != "-"])
    if form == "json":
        from kvroom.report.diagnosis_json import diagnosis_data

        data = [diagnosis_data(each) for each in found]
        write_json(data if len(logs) > 1 or every else data[0])
    elif form == "github":
        from kvroom.report.diagnosis_markdown import diagnosis_markdown

        write("\n".join(diagnosis_markdown(each) for each in found))
    else:
        from kvroom.report.diagnosis_text import print_diagnosis

        def draw(console: Console) -> None:
            for number, each in enumerate(found):
                if number:
                    console.print()
                print_diagnosis(each, console, explain=explain)

        show(draw)
    if any(each.problem for each in found):
        return 1
    return 0 if all(each.verdict.status == "fits" for each in found) else 3
