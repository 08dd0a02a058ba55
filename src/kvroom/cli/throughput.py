"""``kvroom throughput``: time to first token, time per output token, tokens a second, against batch and context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvroom.cli.options import PASS_ON, PassesOn, variables
from kvroom.errors import UsageError

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction
    from kvroom.throughput.scale import Scale
    from kvroom.throughput.tables import TableReader


@click.command(cls=PassesOn, context_settings=PASS_ON)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="MODEL [VLLM FLAGS]...")
@click.option("--gpu", help="The card, e.g. 'RTX 4090' or '2x H100'. Default: the GPUs here.")
@click.option("--gpu-memory", help="Total memory of one card, where it differs, e.g. 23.6GiB.")
@click.option("--input-len", default="1024", show_default=True, help="Tokens of a prompt.")
@click.option("--output-len", default="256", show_default=True, help="Tokens of an answer.")
@click.option("--concurrency", metavar="LIST", help="Requests at once, e.g. 1,8,64. Default: up to the pool.")
@click.option("--ttft", help="Target for the goodput: longest time to first token, e.g. 2s.")
@click.option("--tpot", help="Target for the goodput: longest time per output token, e.g. 50ms.")
@click.option(
    "--measured",
    metavar="RUN|FILE",
    help="What was measured on this machine: concurrency=16,input=1024,output=128,tpot=12.3ms, a result of "
    "`vllm bench serve`, or the server's log.",
)
@click.option(
    "--perf",
    type=click.Choice(["aiconfigurator"]),
    help="Show times by NVIDIA's measured kernels beside the roofline (needs kvroom[perf]).",
)
@click.option("--vllm", help="vLLM release whose rules to use. Default: the installed one, else the newest known.")
@click.option("--assume-quantization", help="Price the model as if its weights were stored so: awq, fp8, w4a16, ...")
@click.option("--env", multiple=True, help="An environment variable of the launch, NAME=VALUE.")
@click.option("--offline", is_flag=True, help="Read nothing from the hub.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def throughput(
    args: tuple[str, ...],
    *,
    input_len: str,
    output_len: str,
    concurrency: str | None,
    ttft: str | None,
    tpot: str | None,
    measured: str | None,
    perf: str | None,
    env: tuple[str, ...],
    as_json: bool,
    **asked: Any,
) -> None:
    """How fast a launch serves: a roofline with factors fitted on public runs, or scaled to one run of yours.

    Everything but the options below is read as what follows `vllm serve`.
    """
    from kvroom.cli.output import show, write_json
    from kvroom.plans.make import plan_tokens
    from kvroom.plans.request import Request
    from kvroom.sizing.quantities import counts, seconds, tokens
    from kvroom.throughput.estimate import Load, estimate

    reader = _reader() if perf is not None else None
    words = args[2:] if list(args[:2]) == ["vllm", "serve"] else args
    load = Load(tokens(input_len, "--input-len"), tokens(output_len, "--output-len"))
    batches = counts(concurrency, "--concurrency") if concurrency is not None else ()
    if len(batches) > 20 or (batches and batches[-1] > 100_000):
        raise UsageError("That is more than a table shows.", "At most 20 concurrencies of at most 100,000.")
    first = seconds(ttft, "--ttft") if ttft is not None else None
    each = seconds(tpot, "--tpot") if tpot is not None else None
    plan = plan_tokens(words, variables(env), Request(**asked, learned=True))
    prediction, scale = plan.prediction, None
    if measured is not None:
        scale = _scale(prediction, measured)
    found = estimate(prediction, load, batches, ttft=first, tpot=each, scale=scale)
    tables = None
    if reader is not None:
        from kvroom.throughput.tables import beside

        tables = beside(found, reader, offline=bool(asked["offline"]))
    if as_json:
        from kvroom.report.throughput_json import throughput_data

        write_json(throughput_data(found, plan.notes, tables))
        return
    from kvroom.report.throughput_text import print_throughput

    targets = " and ".join([f"TTFT {ttft}"] * (ttft is not None) + [f"TPOT {tpot}"] * (tpot is not None))
    show(lambda console: print_throughput(found, targets, plan.notes, console, tables))


def _scale(prediction: Prediction, measured: str) -> Scale:
    """What a run, a benchmark's result or a server's log says of this machine."""
    from kvroom.throughput.estimate import Load, engine_of, scale_of
    from kvroom.throughput.measured import read_measured
    from kvroom.throughput.served import scale_of_log

    run = read_measured(measured)
    if run is None:
        return scale_of_log(engine_of(prediction), measured)
    return scale_of(prediction, Load(run.prompt, run.answer), run.concurrency, run.tpot)


def _reader() -> TableReader:
    """The packaged reader of kernel tables; UsageError where its package is missing."""
    from kvroom.throughput.aiconfigurator import Aiconfigurator

    return Aiconfigurator()
