"""``kvroom diagnose``: what a log says, why the start failed, and what to change."""

from __future__ import annotations

import click

from kvroom.cli.output import console_for, write


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
@click.option("--format", "form", type=click.Choice(["text", "json", "github"]), help="text (default), json, github.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
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
    from kvroom.cli.inputs import diagnoses_of, variables

    if as_json and form not in {None, "json"}:
        raise click.UsageError(f"--json and --format {form} cannot both be had.")
    form = "json" if as_json else form or "text"
    found = diagnoses_of(logs, said, variables(env), every=every, follow=follow)
    if share is not None:
        from kvroom.cli.output import write_file
        from kvroom.report.diagnosis_markdown import diagnosis_markdown

        write_file(share, "\n".join(diagnosis_markdown(each, excerpt=True) for each in found))
    if form == "json":
        import json

        from kvroom.report.diagnosis_json import diagnosis_data

        data = [diagnosis_data(each) for each in found]
        many = len(logs) > 1 or every
        write(json.dumps(data if many else data[0], indent=1, allow_nan=False) + "\n")
    elif form == "github":
        from kvroom.report.diagnosis_markdown import diagnosis_markdown

        write("\n".join(diagnosis_markdown(each) for each in found))
    else:
        from kvroom.report.diagnosis_text import print_diagnosis

        console = console_for()
        with console.capture() as printed:
            for number, each in enumerate(found):
                if number:
                    console.print()
                print_diagnosis(each, console, explain=explain)
        write(printed.get())
    if any(each.problem for each in found):
        return 1
    return 0 if all(each.verdict.status == "fits" for each in found) else 3
