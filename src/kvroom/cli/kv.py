"""``kvroom kv``: what the KV cache takes per token, per sequence and per batch."""

from __future__ import annotations

from typing import Any

import click

from kvroom.cli.options import PASS_ON, PassesOn
from kvroom.errors import UsageError, short


@click.command(cls=PassesOn, context_settings=PASS_ON)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="MODEL [VLLM FLAGS]...")
@click.option("--gpu", help="The card whose plan gives the pool, e.g. '2x L40S'. Default: the GPUs here, else none.")
@click.option("--gpu-memory", help="Total memory of one card, where it differs, e.g. 23.6GiB.")
@click.option("--pool", metavar="SIZE", help="Bytes of one GPU for KV blocks, e.g. 20GiB; no plan is made then.")
@click.option("--context", metavar="LIST", help="Context lengths, e.g. 8k,32k (k is 1,024). Default: up to the limit.")
@click.option("--concurrency", metavar="LIST", default="1,4,16,64,256", help="Sequences at once, e.g. 1,16,128.")
@click.option("--vllm", help="vLLM release whose rules to use. Default: the installed one, else the newest known.")
@click.option("--assume-quantization", help="Price the model as if its weights were stored so: awq, fp8, w4a16, ...")
@click.option("--html", metavar="FILE", help="Write a page (or, for a name in .svg, the plot) that works offline.")
@click.option("--offline", is_flag=True, help="Read nothing from the hub.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def kv(
    args: tuple[str, ...],
    *,
    pool: str | None,
    context: str | None,
    concurrency: str,
    html: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """What a model's KV cache takes: per token, per sequence, per batch, by kind of layer.

    Everything but the options below is read as what follows `vllm serve`; all sizes are those of vLLM's own blocks.
    """
    from kvroom.cli.output import show, write, write_file, write_json
    from kvroom.sizing.kv import kv_table
    from kvroom.sizing.quantities import counts, token_list

    lengths = token_list(context, "--context") if context is not None else ()
    batches = counts(concurrency, "--concurrency")
    if len(batches) > 8 or len(lengths) > 40:
        raise UsageError("That is more than a table shows.", "At most 8 concurrencies and 40 contexts.")
    setup, size, why, notes = _asked(args, pool, asked)
    table = kv_table(setup, lengths, size, pool_why=why)
    if html is not None:
        from kvroom.report.kv_html import kv_page, kv_svg

        if html.lower().endswith(".svg"):
            write_file(html, kv_svg(table, batches))
        else:
            write_file(html, kv_page(table, batches, notes))
    if as_json:
        from kvroom.report.kv_json import kv_data

        write_json(kv_data(table, batches, notes))
        return
    from kvroom.report.kv_text import print_kv

    show(lambda console: print_kv(table, batches, notes, console))
    if html is not None:
        write(f"written to {short(html)}\n")


def _asked(args: tuple[str, ...], pool: str | None, asked: dict[str, Any]) -> tuple[Any, int | None, str, list[str]]:
    """The setup, the pool with where it is from, and notes."""
    from kvroom.devices.names import parse_memory
    from kvroom.errors import DeviceError
    from kvroom.plans.make import plan_tokens
    from kvroom.plans.request import Request
    from kvroom.sizing.kv import pool_of

    words = args[2:] if list(args[:2]) == ["vllm", "serve"] else args
    size = parse_memory(pool) if pool is not None else None
    notes: list[str] = []
    try:
        plan = plan_tokens(words, {}, Request(**asked, learned=pool is None))
        here = True
    except DeviceError:
        if asked["gpu"] is not None:
            raise
        plan = plan_tokens(words, {}, Request(**{**asked, "gpu": "H100"}))
        here = False
        notes.append("No GPU is named or found: the cache is laid out as on an H100.")
    notes += [note for note in plan.notes if here or "assumed, as the launch needs" not in note]
    if size is not None:
        return plan.prediction.setup, size, "as given", notes
    if not here:
        return plan.prediction.setup, None, "", notes
    size, why = pool_of(plan.prediction)
    return plan.prediction.setup, size, f"{why}, as planned on {plan.prediction.setup.machine.device.name}", notes
