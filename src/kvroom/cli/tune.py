"""``kvroom tune`` and ``kvroom trials``: launch the real server, one change a trial; look at what was tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvroom.cli.options import PASS_ON, PassesOn, variables
from kvroom.cli.output import show, write, write_file, write_json

if TYPE_CHECKING:
    from kvroom.trials.store import Run, Store
    from kvroom.trials.trial import Trial


@click.command(cls=PassesOn, context_settings=PASS_ON)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--goal", default="throughput", show_default=True, help="context=32k, concurrency=16@8k or throughput.")
@click.option("--limit", "limits", multiple=True, help="What must hold: ttft<2s, tpot<50ms, peak<95%, throughput>100.")
@click.option("--keep", multiple=True, metavar="FLAG", help="A flag that stays as the command has it.")
@click.option("--max-trials", default=16, show_default=True, help="Launches at most.")
@click.option("--repeats", default=3, show_default=True, help="How often each launch is measured.")
@click.option("--concurrency", type=int, help="Requests at once in the load.")
@click.option("--requests", type=int, help="Requests of one measurement. Default: twice the concurrency.")
@click.option("--input-len", type=int, help="Prompt tokens of a request.")
@click.option("--output-len", type=int, help="Output tokens of a request.")
@click.option("--start-timeout", default=900.0, show_default=True, help="Seconds that a start may take.")
@click.option("--store", help="Any SQLAlchemy URL. Default: an SQLite file in the user's data folder.")
@click.option("--fresh", is_flag=True, help="Begin anew instead of going on after an interrupted run.")
@click.option("--launch-all", is_flag=True, help="Launch also what the ledger says cannot start.")
@click.option("--launcher", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--ray-address", help="The Ray cluster. Default: RAY_ADDRESS, else one on this machine.")
@click.option(
    "--gpu", help="The card that launches are on, e.g. 'RTX 4090', or cpu. Default: the GPUs here, else the CPU."
)
@click.option("--vllm", help="vLLM's release. Default: that of the command's environment or image.")
@click.option("--env", multiple=True, help="An environment variable of every launch, NAME=VALUE.")
@click.option("--offline", is_flag=True, help="Read nothing from the hub.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def tune(
    args: tuple[str, ...],
    *,
    store: str | None,
    fresh: bool,
    as_json: bool,
    gpu: str | None,
    vllm: str | None,
    env: tuple[str, ...],
    offline: bool,
    start_timeout: float,
    **said: Any,
) -> int:
    """Launch a real server again and again, one change a trial, and end with the best command.

    Every trial is predicted first, and one that cannot start is not launched. Kept are KV tokens, time to first
    token, output tokens a second and peak memory. The same command goes on after an interrupted run.

    Exit code: 0 the goal is met, 1 nothing meets it (the nearest is named), 2 wrong usage.
    """
    from kvroom.cli.progress import ends_on_terminate
    from kvroom.cli.tune_progress import TuneProgress
    from kvroom.plans.request import Request
    from kvroom.trials.database import data_folder
    from kvroom.trials.prepare import Asked, prepare
    from kvroom.trials.run import Tuner
    from kvroom.trials.store import Store

    kept = Store(store)
    request = Request(gpu=gpu, vllm=vllm, offline=offline, learned=True)
    asked = Asked(request=request, timeout=start_timeout, **said)
    prepared = prepare([*(f"{name}={value}" for name, value in variables(env).items()), *args], asked)
    with ends_on_terminate(), TuneProgress(prepared.question) as progress:
        for note in prepared.notes:
            progress.note(note)
        tuner = Tuner(prepared.question, kept, prepared.launcher, prepared.foresight, data_folder(), progress)
        try:
            ending, trials = tuner.tune(fresh=fresh)
        except KeyboardInterrupt:
            progress.note("interrupted; the server was stopped. The same command goes on from here.")
            raise
    run = tuner.run
    assert run is not None
    _print(run, kept, trials, ending.data(), as_json=as_json)
    return 0 if ending.met else 1


@click.command()
@click.argument("run", required=False)
@click.option("--store", help="Any SQLAlchemy URL. Default: an SQLite file in the user's data folder.")
@click.option("--export", "export_to", metavar="FILE", help="Write the run to a .json, .csv or .html file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def trials(run: str | None, *, store: str | None, export_to: str | None, as_json: bool) -> None:
    """List the runs of `kvroom tune`, or the trials of one: the beginning of its id, or `last`.

    An .html export holds the table of what was changed and what came of it, with plots; it needs no network.
    """
    from kvroom.trials.store import Store

    kept = Store(store)
    if run is None and export_to is None:
        _list(kept, as_json=as_json)
        return
    chosen = kept.run("" if run in {None, "last"} else str(run))
    found = kept.trials(chosen)
    if export_to is None:
        _print(chosen, kept, found, chosen.ending, as_json=as_json)
        return
    write_file(export_to, _exported(export_to, chosen, found))
    write(f"{len(found)} trials written to {export_to}\n")


def _exported(name: str, run: Run, found: list[Trial]) -> str:
    import json

    from kvroom.report.trials import run_data, trials_csv
    from kvroom.report.trials_html import trials_html

    ending = name.rpartition(".")[2].lower()
    if ending == "json":
        return json.dumps(run_data(run, found, run.ending), indent=1) + "\n"
    if ending == "csv":
        return trials_csv(found)
    if ending in {"html", "htm"}:
        return trials_html(run, found)
    raise click.UsageError("--export: give a name that ends in .json, .csv or .html.")


def _print(run: Run, store: Store, found: list[Trial], ending: Any, *, as_json: bool) -> None:
    from kvroom.report.trials import print_run, run_data

    if as_json:
        write_json({**run_data(run, found, ending), "store": _plain(store.url)})
    else:
        show(lambda console: print_run(run, found, ending, console))


def _list(store: Store, *, as_json: bool) -> None:
    from kvroom.report.trials import print_runs, runs_data

    every = store.runs()
    if as_json:
        write_json(runs_data(every, _plain(store.url)))
    else:
        show(lambda console: print_runs(every, _plain(store.url), console))


def _plain(url: str) -> str:
    """A store's URL without the password in it."""
    before, at, after = url.rpartition("@")
    return f"{before.partition('://')[0]}://...@{after}" if at else url
