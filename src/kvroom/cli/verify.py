"""``kvroom verify``: does a running server serve what it says, and where does it stop?"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvroom.cli.output import refuse_unwritable, show, write_file, write_json
from kvroom.errors import UsageError, short

if TYPE_CHECKING:
    from kvroom.server.verify import Verification, Wishes
    from kvroom.server.workload import Workload

_MOST_LEVEL = 100_000
_UNITS = {"s": 1.0, "ms": 0.001, "": 1.0}


@click.command()
@click.argument("url")
@click.option("--model", help="The served name to ask for. Default: the first that the server lists.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the key, e.g. VLLM_API_KEY.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Send this header as well.")
@click.option("--ca-file", metavar="FILE", help="Trust the certificates in this file too.")
@click.option("--insecure", is_flag=True, help="Trust any certificate.")
@click.option("--endpoint", type=click.Choice(["completions", "chat"]), default="completions", show_default=True)
@click.option("--concurrency", metavar="N|N,N,...", help="Levels of the ramp; of one number 1, 2, 4, ... up to it.")
@click.option("--input-len", type=click.IntRange(1), help="Tokens of a prompt in the ramp. Default: 256.")
@click.option("--output-len", type=click.IntRange(1), help="Tokens of an answer in the ramp. Default: 64.")
@click.option("--trace", metavar="FILE", help="Lengths, and arrival times if it has them, from JSON lines or CSV.")
@click.option("--num-prompts", type=click.IntRange(1), help="Requests at each level. Default: two a seat, at least 8.")
@click.option("--ttft", metavar="TIME", help="Target for the time to the first token, e.g. 2s: 95 of 100 must meet it.")
@click.option("--tpot", metavar="TIME", help="Target for the time per output token after the first, e.g. 50ms.")
@click.option("--no-boundary", is_flag=True, help="Leave out the requests around max_model_len.")
@click.option("--no-ramp", is_flag=True, help="Leave out the load.")
@click.option("--max-model-len", type=click.IntRange(2), help="The longest request, where the server does not say it.")
@click.option(
    "--max-requests", type=click.IntRange(1), default=1000, show_default=True, help="Send no more than these."
)
@click.option("--max-seconds", type=click.FloatRange(1), default=600.0, show_default=True, help="End after these.")
@click.option("--timeout", type=click.FloatRange(1), default=120.0, show_default=True, help="Seconds for one request.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random prompts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
@click.option("--html", metavar="FILE", help="Write a report with plots, one file that needs no network.")
@click.option("--bench-json", metavar="FILE", help="Write the best step as `vllm bench serve --save-detailed` does.")
def verify(url: str, *, as_json: bool, html: str | None, bench_json: str | None, **said: Any) -> int:
    """Ask the OpenAI-compatible server at URL what it serves, and try it.

    Health, version, models, small requests; then requests of exact lengths up to max_model_len and one past it;
    then more and more at once until the KV cache, max_num_seqs or a latency target ends it, with the server's
    /metrics beside. What the server claims of its KV cache is measured.

    Nothing is sent to any other host. No key is read from the environment unless --api-key-env names it.

    Exit code: 0 all holds, 1 something does not, 2 wrong usage or no such server.
    """
    import os

    from kvroom.cli.progress import Steps, ends_on_terminate
    from kvroom.server.address import access_of, parse_address
    from kvroom.server.verify import verify as ask

    address = parse_address(url)
    access = access_of(said["headers"], said["api_key_env"], os.environ, said["ca_file"], insecure=said["insecure"])
    wishes = _wishes(said)
    if bench_json is not None and not wishes.ramp:
        raise click.UsageError("--bench-json holds figures of the load; leave out --no-ramp.")
    for file in (html, bench_json):
        if file is not None:
            refuse_unwritable(file)
    with ends_on_terminate(), Steps(0) as steps:
        found = ask(address, access, wishes, steps.detail)
    if as_json:
        from kvroom.report.verify_json import verification_data

        write_json(verification_data(found))
    else:
        from kvroom.report.verify_text import print_verification

        show(lambda console: print_verification(found, console))
    _write_files(found, html, bench_json)
    return 0 if found.holds else 1


def _write_files(found: Verification, html: str | None, bench_json: str | None) -> None:
    if html is not None:
        from kvroom.report.verify_html import verification_page

        write_file(html, verification_page(found))
    if bench_json is not None:
        import json

        from kvroom.report.verify_bench import bench_data

        if found.ramp is None or found.ramp.best is None:
            raise UsageError("--bench-json: no step was served in full, so there is nothing to write.")
        write_file(bench_json, json.dumps(bench_data(found, found.ramp.best)) + "\n")


def _wishes(said: dict[str, Any]) -> Wishes:
    from kvroom.server.limits import Targets
    from kvroom.server.verify import Wishes

    for option, value in (("--max-seconds", said["max_seconds"]), ("--timeout", said["timeout"])):
        if not math.isfinite(value):
            raise UsageError(f"{option} {value}: not a number of seconds.", "Write it as in 120.")
    return Wishes(
        model=said["model"],
        max_model_len=said["max_model_len"],
        chat=said["endpoint"] == "chat",
        workload=_workload(said["trace"], said["input_len"], said["output_len"]),
        levels=_levels(said["concurrency"]),
        requests=said["num_prompts"],
        targets=Targets(seconds(said["ttft"], "--ttft"), seconds(said["tpot"], "--tpot")),
        boundary=not said["no_boundary"],
        ramp=not said["no_ramp"],
        max_requests=said["max_requests"],
        max_seconds=said["max_seconds"],
        timeout=said["timeout"],
        seed=said["seed"],
    )


def _workload(trace: str | None, input_len: int | None, output_len: int | None) -> Workload | None:
    from kvroom.server.workload import fixed, read_trace

    if trace is not None:
        if input_len or output_len:
            raise click.UsageError("--trace has its own lengths; leave out --input-len and --output-len.")
        return read_trace(Path(trace))
    if input_len is None and output_len is None:
        return None
    return fixed(input_len or 256, output_len or 64)


def _levels(text: str | None) -> tuple[int, ...] | None:
    from kvroom.server.ramp import levels_to

    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:7]) <= _MOST_LEVEL for part in parts):
        raise UsageError(f"--concurrency {short(text)}: not numbers of requests at once.", "Write 16, or 1,4,16.")
    levels = tuple(int(part) for part in parts)
    return levels_to(levels[0]) if len(levels) == 1 else levels


def seconds(text: str | None, option: str) -> float | None:
    """The seconds that ``2s``, ``500ms`` or ``0.5`` stand for; UsageError for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)\s*(ms|s|)", text.strip())
    value = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if value <= 0:
        raise UsageError(f"{option} {short(text)}: not a time.", "Write it as in 2s or 500ms.")
    return value
