"""The ``kvroom`` command: it reads the arguments, asks, prints and chooses the exit code."""

from __future__ import annotations

import sys
from typing import Any

import click

from kvroom.cli.options import shared
from kvroom.errors import KvroomError
from kvroom.redaction import clean
from kvroom.version import __version__

_PASS_ON = {"ignore_unknown_options": True}


@click.group(context_settings={"help_option_names": ["--help", "-h"]})
@click.version_option(__version__, message="kvroom %(version)s")
def app() -> None:
    """Is there room in this GPU's KV cache, and what must I change if there is not?"""


@app.command(context_settings=_PASS_ON)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="MODEL [VLLM FLAGS]...")
@shared
def plan(args: tuple[str, ...], *, as_json: bool, explain: bool, **asked: Any) -> None:
    """Predict one launch: ledger, verdict, KV pool, remedies, the lines vLLM will print.

    Everything but the options below is read as what follows `vllm serve`.
    """
    from kvroom.cli import jobs

    jobs.print_plans([jobs.one(args, jobs.Asked(**asked))], as_json=as_json, explain=explain, many=False)


@app.command(context_settings=_PASS_ON)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="FILE... | -- COMMAND...")
@shared
def check(args: tuple[str, ...], *, as_json: bool, explain: bool, **asked: Any) -> int:
    """Check a real command, a docker line or a shell script.

    Exit code: 0 fits, 1 fails, 2 wrong usage, 3 tight or unknown.
    """
    from kvroom.cli import jobs

    plans, many = jobs.many(args, jobs.Asked(**asked))
    jobs.print_plans(plans, as_json=as_json, explain=explain, many=many)
    return jobs.exit_code(plans)


@app.command()
@click.argument("code", required=False)
def rule(code: str | None) -> None:
    """Explain a finding by its code or name; without one, list them all."""
    from kvroom.cli import jobs

    jobs.print_rule(code)


def run(argv: list[str] | None = None) -> int:
    """Run the command line ``argv`` (default: the process's own) and return its exit code.

    A KvroomError is printed as one message on standard error; the code is then 2.
    """
    try:
        code = app.main(argv, prog_name="kvroom", standalone_mode=False)
    except KvroomError as error:
        for line in f"error: {error}".splitlines():
            sys.stderr.write(clean(line) + "\n")
        return 2
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    return int(code or 0)


def entry() -> None:
    """The console script."""
    try:
        sys.exit(run())
    except BrokenPipeError:
        # The reader went away (`kvroom ... | head`): nothing is left to say.
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
