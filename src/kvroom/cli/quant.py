"""``kvroom quant``: what other ways to store the weights bring, and what they cost."""

from __future__ import annotations

from typing import Any

import click

from kvroom.cli.options import PASS_ON, PassesOn, variables
from kvroom.errors import UsageError


@click.command(cls=PassesOn, context_settings=PASS_ON)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="MODEL [VLLM FLAGS]...")
@click.option("--gpu", help="The card, e.g. 'RTX 4090' or '2x H100'. Default: the GPUs here.")
@click.option("--gpu-memory", help="Total memory of one card, where it differs, e.g. 23.6GiB.")
@click.option("--context", help="Tokens of a request, for the number of GPUs. Default: max_model_len.")
@click.option("--concurrency", type=click.IntRange(1, 1_000_000), default=1, help="Requests of that length at once.")
@click.option("--find", is_flag=True, help="Ask the hub for public checkpoints (only the model's name is sent).")
@click.option("--vllm", help="vLLM release whose rules to use. Default: the installed one, else the newest known.")
@click.option("--env", multiple=True, help="An environment variable of the launch, NAME=VALUE.")
@click.option("--without", multiple=True, help="A package that the vLLM environment lacks, e.g. flashinfer.")
@click.option("--offline", is_flag=True, help="Read nothing from the hub.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def quant(
    args: tuple[str, ...],
    *,
    context: str | None,
    concurrency: int,
    find: bool,
    env: tuple[str, ...],
    as_json: bool,
    **asked: Any,
) -> None:
    """Weights, and what they leave for the KV cache, stored in 16 bits, fp8, AWQ, GPTQ, w4a16, NVFP4, MXFP4, GGUF...

    Everything but the options below is read as what follows `vllm serve`.
    """
    from kvroom.cli.output import show, write_json
    from kvroom.plans.make import plan_tokens
    from kvroom.plans.request import Request
    from kvroom.sizing.checkpoints import HubListing, found_for, refuse_offline
    from kvroom.sizing.quant import quant_table
    from kvroom.sizing.quantities import tokens

    words = args[2:] if list(args[:2]) == ["vllm", "serve"] else args
    if find:
        refuse_offline(asked["offline"])
    request = Request(**asked)
    plan = plan_tokens(words, variables(env), request)
    setup = plan.prediction.setup
    if setup.args.unknown:
        raise UsageError(f"vLLM {setup.release} has no {' '.join(setup.args.unknown)[:100]}.", "Leave it out.")
    length = tokens(context, "--context") if context is not None else None
    table = quant_table(setup, request, context=length, concurrency=concurrency)
    names = [row.name for row in table.rows]
    found = found_for(setup.args.model, names, HubListing()) if find else None
    if as_json:
        from kvroom.report.quant_json import quant_data

        write_json(quant_data(table, found, plan.notes))
        return
    from kvroom.report.quant_text import print_quant

    show(lambda console: print_quant(table, found, plan.notes, console))
