"""``kvroom size``: which GPUs, how many, how spread and stored, for a context and a number of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvroom.cli.options import PASS_ON, PassesOn, emits, variables
from kvroom.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from kvroom.devices.device import Device
    from kvroom.sizing.answer import Answer
    from kvroom.sizing.prices import Prices
    from kvroom.sizing.problem import Problem
    from kvroom.sizing.search import Found


@click.command(cls=PassesOn, context_settings=PASS_ON)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[MODEL [VLLM FLAGS]...]")
@click.option("--context", help="The longest request, prompt and answer, e.g. 32k (k is 1,024).")
@click.option("--concurrency", type=int, help="Requests of that length at once.")
@click.option("--users", type=int, help="Users, each with one request at a time.")
@click.option("--input-len", help="Tokens of a usual prompt.")
@click.option("--output-len", help="Tokens of a usual answer.")
@click.option("--rate", help="Requests a second of all users together, e.g. 5/s or 300/min.")
@click.option("--ttft", help="Longest time to first token, e.g. 2s.")
@click.option("--tpot", help="Longest time per output token, e.g. 50ms.")
@click.option("--gpu", "gpus", multiple=True, help="Search this card only (repeatable); '4x H100' is at most four.")
@click.option(
    "--price", multiple=True, metavar="NAME=PRICE|FILE", help="A GPU's price an hour, or a YAML file of them."
)
@click.option("--variants", default="fp8,w4a16", help="Ways to store the weights to try beside the checkpoint's own.")
@click.option("--kv-dtypes", default="auto,fp8", help="KV cache dtypes to try.")
@click.option("--max-gpus", type=int, default=32, show_default=True, help="GPUs at most.")
@click.option("--gpus-per-node", type=int, default=8, show_default=True, help="GPUs that share one machine.")
@click.option("--have", metavar="GPUS", help="Ask the inverse: which models run on these, e.g. '4x RTX 3090'.")
@click.option("--with", "tenants", multiple=True, metavar="MODEL@CONTEXT[:N]", help="Another model on the same card.")
@emits
@click.option("--pick", type=click.IntRange(1), default=1, show_default=True, help="The row that --emit writes.")
@click.option("--top", type=click.IntRange(1, 10_000), default=12, show_default=True, help="Rows to print.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes to search in.")
@click.option("--ray", metavar="ADDRESS", help="Search on a Ray cluster (needs the extra).")
@click.option("--vllm", help="vLLM release whose rules to use. Default: the installed one, else the newest known.")
@click.option("--env", multiple=True, help="An environment variable of the launch, NAME=VALUE.")
@click.option("--without", multiple=True, help="A package that the vLLM environment lacks, e.g. flashinfer.")
@click.option("--offline", is_flag=True, help="Read nothing from the hub.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def size(args: tuple[str, ...], *, have: str | None, tenants: tuple[str, ...], as_json: bool, **asked: Any) -> int:
    """Which hardware holds a need: every candidate goes through the ledger that `kvroom plan` prints.

    Everything but the options below is read as what follows `vllm serve`, for every candidate.
    Exit code: 0 something holds it, 1 nothing does, 2 wrong usage.
    """
    if have is not None:
        if args or tenants or asked["gpus"] or asked["emit"]:
            raise UsageError("--have asks which models run, so it takes no model, --with, --gpu or --emit.")
        return _have(have, asked, as_json)
    words = args[2:] if list(args[:2]) == ["vllm", "serve"] else args
    if not words:
        raise UsageError("No model is named.", "kvroom size MODEL --context 32k --concurrency 16, or --have GPUS.")
    return _share(words, tenants, asked, as_json) if tenants else _size(words, asked, as_json)


def _size(words: tuple[str, ...], asked: dict[str, Any], as_json: bool) -> int:
    from kvroom.cli.output import show, write_json
    from kvroom.sizing.answer import answer_of
    from kvroom.sizing.prices import read_prices

    prices = read_prices(asked["price"])
    devices, most = _devices(asked["gpus"], asked["max_gpus"], prices)
    problem, notes = _problem(words, asked, most)
    answer = answer_of(problem, _search(problem, devices, asked), prices, len(devices))
    if prices.hourly and not asked["gpus"]:
        notes.append("Only cards with a --price are searched; give --gpu to search others as well.")
    if asked["emit"] is not None:
        return _emit(answer, asked, as_json)
    if as_json:
        from kvroom.report.size_json import size_data

        write_json(size_data(answer, notes, asked["top"]))
    else:
        from kvroom.report.size_text import print_size

        show(lambda console: print_size(answer, notes, console, top=asked["top"]))
    return 0 if answer.options else 1


def _emit(answer: Answer, asked: dict[str, Any], as_json: bool) -> int:
    """Write the deployment of one row."""
    from dataclasses import replace

    from kvroom.cli import jobs
    from kvroom.plans.make import plan_tokens

    if asked["pick"] > len(answer.options):
        raise UsageError(
            f"--pick {asked['pick']}: there are {len(answer.options)} rows.", "Look at them without --emit."
        )
    option = answer.options[asked["pick"] - 1]
    stored = option.weights if option.other_checkpoint else None
    request = replace(_request(asked), gpu=f"{option.gpus}x {option.asked_as}", assume_quantization=stored)
    jobs.print_deployment(plan_tokens(option.tokens, variables(asked["env"]), request), asked["emit"], as_json=as_json)
    return 0


def _problem(words: tuple[str, ...], asked: dict[str, Any], most: int) -> tuple[Problem, list[str]]:
    from dataclasses import replace

    from kvroom.ledger.predict import predict
    from kvroom.plans.release import choose_release
    from kvroom.sizing.need import Asked, Need, need_of
    from kvroom.sizing.problem import NATIVE, Problem

    names = ("context", "concurrency", "users", "input_len", "output_len", "rate", "ttft", "tpot")
    kinds = tuple(dict.fromkeys(["as it is", *(word.strip() for word in asked["variants"].split(",") if word.strip())]))
    caches = tuple(dict.fromkeys(word.strip() for word in asked["kv_dtypes"].split(",") if word.strip()))
    if not 1 <= asked["gpus_per_node"] <= 72:
        raise UsageError(f"--gpus-per-node {asked['gpus_per_node']}: from 1 to 72.")
    draft = Problem(
        words,
        Need(1, 1, 1),
        variables(asked["env"]),
        _request(asked),
        tuple(NATIVE if kind == "as it is" else kind for kind in kinds),
        caches or ("auto",),
        asked["gpus_per_node"],
        most,
    )
    whole = predict(draft.base)
    if whole.settings is None:
        raise UsageError(f"vLLM refuses this model: {whole.verdict.message}", "`kvroom plan` says what to change.")
    need = need_of(Asked(**{name: asked[name] for name in names}), whole.settings.derived_max_model_len, words[0])
    return replace(draft, need=need), list(choose_release(asked["vllm"])[1])


def _request(asked: dict[str, Any]) -> Any:
    from kvroom.plans.request import Request

    return Request(vllm=asked["vllm"], offline=asked["offline"], without=asked["without"])


def _devices(names: tuple[str, ...], most: int, prices: Prices) -> tuple[list[Device], int]:
    """The cards to search (those named, else those with a price, else all usual ones), and how many at most."""
    from kvroom.devices.catalogue import find_device, parts
    from kvroom.devices.names import MOST_GPUS, parse_gpu
    from kvroom.sizing.problem import usual_devices

    if not 1 <= most <= MOST_GPUS:
        raise UsageError(f"--max-gpus {most}: from 1 to {MOST_GPUS}.")
    if not names and prices.hourly:
        return [part.device for part in parts() if part.device.id in prices.hourly], most
    if not names:
        return list(usual_devices()), most
    asked = [parse_gpu(name) for name in names]
    found = {find_device(name).id: find_device(name) for name, _ in asked}
    counted = max(count for _, count in asked)
    return list(found.values()), counted if counted > 1 else most


def _search(problem: Problem, devices: list[Device], asked: dict[str, Any]) -> Found:
    from kvroom.sizing import workers
    from kvroom.sizing.search import search

    if asked["ray"] is not None:
        return workers.search_on_ray(problem, devices, asked["ray"])
    if asked["jobs"] != 1:
        return workers.search_in_processes(problem, devices, asked["jobs"])
    return search(problem, devices)


def _share(words: tuple[str, ...], tenants: tuple[str, ...], asked: dict[str, Any], as_json: bool) -> int:
    from kvroom.cli.output import show, write_json
    from kvroom.devices.catalogue import find_device
    from kvroom.sizing.quantities import tokens
    from kvroom.sizing.share import Tenant, read_tenant, share

    if asked["emit"] is not None:
        raise UsageError("--emit writes one launch, and --with asks for several.", "Emit each with `kvroom plan`.")
    if len(asked["gpus"]) != 1 or asked["context"] is None:
        raise UsageError("--with needs the card and the first model's context.", "Give one --gpu and --context.")
    device = find_device(asked["gpus"][0])
    first = Tenant(words, tokens(asked["context"], "--context"), asked["concurrency"] or 1)
    everyone = [first, *(read_tenant(text) for text in tenants)]
    sharing = share(everyone, device, _request(asked), variables(asked["env"]))
    notes = [device.note] if device.note else []
    if as_json:
        from kvroom.report.size_json import share_data

        write_json(share_data(sharing, notes))
    else:
        from kvroom.report.size_others import print_share

        show(lambda console: print_share(sharing, notes, console))
    return 0 if sharing.fits else 1


def _have(have: str, asked: dict[str, Any], as_json: bool) -> int:
    from kvroom.cli.output import show, write_json
    from kvroom.devices.catalogue import find_device
    from kvroom.devices.device import Machine
    from kvroom.devices.names import parse_gpu
    from kvroom.plans.release import choose_release
    from kvroom.sizing.have import fits
    from kvroom.sizing.quantities import tokens

    name, count = parse_gpu(have)
    device = find_device(name)
    release = choose_release(asked["vllm"])[0]
    concurrency = asked["concurrency"] or asked["users"] or 1
    context = tokens(asked["context"], "--context") if asked["context"] else None
    found = fits(
        Machine(device, count), release, concurrency=concurrency, context=context, per_node=asked["gpus_per_node"]
    )
    if as_json:
        from kvroom.report.size_json import have_data

        write_json(have_data(device.name, count, concurrency, found))
    else:
        from kvroom.report.size_others import print_have

        least = f" of {context:,} tokens or more" if context else ""
        title = (
            f"On {count} x {device.name}, vLLM {release}: {concurrency} request{'s' * (concurrency > 1)}{least} at once"
        )

        def draw(console: Console) -> None:
            print_have(title, found, console, top=asked["top"])

        show(draw)
    return 0 if found else 1
