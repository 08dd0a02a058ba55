"""The ``kvroom`` command: it reads the arguments, asks, prints and chooses the exit code."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import click

from kvroom.cli.compare import compare
from kvroom.cli.diagnose import diagnose
from kvroom.cli.dry_run import dry_run
from kvroom.cli.engine import engine
from kvroom.cli.env import env
from kvroom.cli.kv import kv
from kvroom.cli.learn import learn, learned
from kvroom.cli.options import PASS_ON, PassesOn, check_options, chosen, emits, shared
from kvroom.cli.quant import quant
from kvroom.cli.size import size
from kvroom.cli.throughput import throughput
from kvroom.cli.tune import trials, tune
from kvroom.cli.verify import verify
from kvroom.errors import KvroomError
from kvroom.redaction import clean
from kvroom.version import __version__

_QUIET_HUB = {"HF_HUB_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""The hub's library prints bars and attempts beside the answer unless somebody asks for them."""


@click.group(context_settings={"help_option_names": ["--help", "-h"]})
@click.version_option(__version__, message="kvroom %(version)s")
def app() -> None:
    """Is there room in this GPU's KV cache, and what must I change if there is not?"""


@app.command(cls=PassesOn, context_settings=PASS_ON)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="MODEL [VLLM FLAGS]...")
@shared
@click.option("--exact", is_flag=True, help="Let vLLM's own code answer, as `kvroom dry-run` does.")
@emits
def plan(args: tuple[str, ...], *, as_json: bool, explain: bool, exact: bool, emit: str | None, **asked: Any) -> None:
    """Predict one launch: ledger, verdict, KV pool, remedies, the lines vLLM will print.

    Everything but the options below is read as what follows `vllm serve`.
    """
    from kvroom.cli import jobs

    if exact:
        from kvroom.cli.dry_run import run_dry

        run_dry(args, jobs.Asked(**asked), None, as_json=as_json, explain=explain)
        return
    if emit is not None:
        jobs.print_deployment(jobs.one(args, jobs.Asked(**asked)), emit, as_json=as_json)
        return
    jobs.print_plans([jobs.one(args, jobs.Asked(**asked))], as_json=as_json, explain=explain, many=False)


@app.command(cls=PassesOn, context_settings=PASS_ON)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="FILE... | -- COMMAND...")
@shared
@check_options
def check(
    args: tuple[str, ...],
    *,
    as_json: bool,
    explain: bool,
    form: str | None,
    assume_model: tuple[str, ...],
    allow_none: bool,
    **asked: Any,
) -> int:
    """Check a real command, scripts, compose files, manifests, or a folder of them.

    Exit code: 0 fits, 1 a launch fails, 2 wrong usage or not readable, 3 tight or unknown.
    """
    from kvroom.cli import jobs

    form = chosen(form, as_json)
    checked = jobs.many(args, jobs.Asked(**asked), assume_model, allow_none=allow_none)
    jobs.print_checked(checked, form, explain=explain)
    return jobs.exit_code(checked.items)


@app.command()
@click.argument("code", required=False)
def rule(code: str | None) -> None:
    """Explain a finding by its code or name; without one, list them all."""
    from kvroom.cli import jobs

    jobs.print_rule(code)


app.add_command(compare)
app.add_command(diagnose)
app.add_command(dry_run)
app.add_command(engine)
app.add_command(env)
app.add_command(kv)
app.add_command(learn)
app.add_command(learned)
app.add_command(quant)
app.add_command(size)
app.add_command(throughput)
app.add_command(trials)
app.add_command(tune)
app.add_command(verify)


def run(argv: list[str] | None = None) -> int:
    """Run the command line ``argv`` (default: the process's own) and return its exit code.

    A KvroomError is printed as one message on standard error; the code is then 2.
    """
    try:
        code = app.main(argv, prog_name="kvroom", standalone_mode=False)
    except KvroomError as error:
        return _failed(f"error: {error}")
    except click.ClickException as error:
        message = error.format_message()
        return _failed(message if message.startswith("Usage:") else f"error: {message}")
    except click.Abort:
        return 130
    return int(code or 0)


def _failed(message: str) -> int:
    sys.stderr.write(clean(message) + "\n")
    return 2


def entry() -> None:
    """The console script. Its streams may be closed, know ASCII only, be full or have no reader."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.TextIOWrapper(io.BytesIO()))
        elif name != "stdin":
            stream.reconfigure(errors="replace")
    for name, value in _QUIET_HUB.items():
        os.environ.setdefault(name, value)
    try:
        code = run()
        sys.stdout.flush()
    except OSError as error:
        code = _failed(f"error: the output cannot be written: {error.strerror}.")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
