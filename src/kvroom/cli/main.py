"""The ``kvroom`` command: it reads the arguments, asks, prints and chooses the exit code."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kvroom.cli.options import (
    AssumeQuantization,
    Env,
    Explain,
    FreeMemory,
    Gpu,
    GpuMemory,
    Json,
    Measured,
    MeasuredWith,
    Offline,
    Vllm,
    Without,
)

app = typer.Typer(
    name="kvroom",
    help="Is there room in this GPU's KV cache, and what must I change if there is not?",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_PASS_ON = {"ignore_unknown_options": True}


@app.command(context_settings=_PASS_ON)
def plan(
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL [VLLM FLAGS]...", help="What follows `vllm serve`."),
    ] = None,
    gpu: Gpu = None,
    gpu_memory: GpuMemory = None,
    free_memory: FreeMemory = None,
    vllm: Vllm = None,
    assume_quantization: AssumeQuantization = None,
    measured: Measured = None,
    measured_with: MeasuredWith = None,
    without: Without = None,
    env: Env = None,
    offline: Offline = False,
    json: Json = False,
    explain: Explain = False,
) -> None:
    """Predict one launch: ledger, verdict, KV pool, remedies, the lines vLLM will print."""
    from kvroom.cli import jobs

    request = jobs.request(
        gpu, gpu_memory, free_memory, vllm, assume_quantization, measured, measured_with, offline, without
    )
    jobs.print_plans([jobs.one(args or [], env, request)], as_json=json, explain=explain, many=False)


@app.command(context_settings=_PASS_ON)
def check(
    args: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE... | -- COMMAND...", help="Files with launch commands, or one command after `--`."
        ),
    ] = None,
    gpu: Gpu = None,
    gpu_memory: GpuMemory = None,
    free_memory: FreeMemory = None,
    vllm: Vllm = None,
    assume_quantization: AssumeQuantization = None,
    measured: Measured = None,
    measured_with: MeasuredWith = None,
    without: Without = None,
    env: Env = None,
    offline: Offline = False,
    json: Json = False,
    explain: Explain = False,
) -> None:
    """Check a real command, a docker line or a shell script. Exit 0 fits, 1 fails, 3 tight or unknown."""
    from kvroom.cli import jobs

    request = jobs.request(
        gpu, gpu_memory, free_memory, vllm, assume_quantization, measured, measured_with, offline, without
    )
    plans, many = jobs.many(args or [], env, request)
    jobs.print_plans(plans, as_json=json, explain=explain, many=many)
    raise typer.Exit(jobs.exit_code(plans))


@app.command()
def rule(
    code: Annotated[str | None, typer.Argument(help="A finding's code or name; all are listed without one.")] = None,
) -> None:
    """Explain a finding."""
    from kvroom.cli import jobs

    jobs.print_rule(code)


def _version(wanted: bool) -> None:
    if wanted:
        from kvroom.version import __version__

        typer.echo(f"kvroom {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Is there room in this GPU's KV cache, and what must I change if there is not?"""


def run(argv: list[str] | None = None) -> int:
    """Run the command line ``argv`` (default: the process's own) and return its exit code.

    A KvroomError is printed as one message on standard error; the code is then 2.
    """
    from kvroom.errors import KvroomError
    from kvroom.redaction import clean

    try:
        code = app(argv, standalone_mode=False)
    except KvroomError as error:
        for line in f"error: {error}".splitlines():
            sys.stderr.write(clean(line) + "\n")
        return 2
    except typer.Abort:
        return 130
    except Exception as error:
        shown = getattr(error, "show", None)
        if shown is None:
            raise
        shown()
        return int(getattr(error, "exit_code", 2))
    return int(code or 0)


def entry() -> None:
    """The console script."""
    try:
        sys.exit(run())
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
