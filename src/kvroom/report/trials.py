"""A run of ``tune`` as text, JSON and CSV: what each trial changed, what was predicted, what came of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from kvroom.redaction import clean
from kvroom.report.as_json import cleaned
from kvroom.report.command import show_command
from kvroom.report.schema import SCHEMA
from kvroom.report.terminal import line
from kvroom.trials.changes import shown
from kvroom.trials.store import Run
from kvroom.trials.trial import State, Trial
from kvroom.units import show_bytes
from kvroom.vllm.releases import Release, parse_release

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = (
    "number", "state", "kept", "step", "changes", "predicted", "predicted_kv_tokens", "kv_tokens", "max_model_len",
    "ttft_s", "tpot_s", "output_tokens_per_s", "peak_bytes", "peak_share", "start_s", "seconds", "failures",
    "preemptions", "finding", "reason", "log",
)  # fmt: skip
"""Of the CSV, in this order."""


def run_data(run: Run, trials: Sequence[Trial], ending: Mapping[str, Any] | None) -> dict[str, Any]:
    """The whole run; sizes in bytes, durations in seconds."""
    data = {
        "schema": SCHEMA,
        "kind": "tune",
        "run": run.id,
        "created": run.created,
        "ended": run.ended,
        "asked": dict(run.asked),
        "trials": [trial_data(trial) for trial in trials],
        "ending": dict(ending) if ending else None,
    }
    found: dict[str, Any] = cleaned(data)
    return found


def trial_data(trial: Trial) -> dict[str, Any]:
    """One trial with its figures in the open."""
    data = trial.data()
    figures = trial.figures
    if figures is not None:
        data["figures"] |= {
            "throughput": figures.throughput,
            "ttft": figures.ttft,
            "tpot": figures.tpot,
            "failures": figures.failures,
            "samples": [dict(sample) for sample in data["figures"]["samples"]],
        }
    lists = ("remedies", "notes")
    data |= {name: list(data[name]) for name in lists}
    data["forecast"]["remedies"] = list(data["forecast"]["remedies"])
    return data


def runs_data(runs: Sequence[Run], store: str) -> dict[str, Any]:
    """Every run of a store, without its trials."""
    listed = [
        {"run": run.id, "created": run.created, "ended": run.ended, "asked": dict(run.asked), "ending": run.ending}
        for run in runs
    ]
    found: dict[str, Any] = cleaned({"schema": SCHEMA, "kind": "trials", "store": store, "runs": listed})
    return found


def trials_csv(trials: Sequence[Trial]) -> str:
    """A line a trial, with a line of names; empty where a trial has no figure."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(trial) for trial in trials)
    return out.getvalue()


def _row(trial: Trial) -> dict[str, Any]:
    figures, forecast = trial.figures, trial.forecast
    row: dict[str, Any] = {
        "number": trial.number,
        "state": str(trial.state),
        "kept": int(trial.kept),
        "step": _plain(trial.proposal.step),
        "changes": _plain(trial.changes),
        "predicted": forecast.status,
        "predicted_kv_tokens": forecast.kv_tokens,
        "seconds": round(trial.seconds, 3),
        "finding": trial.finding,
        "reason": clean(trial.reason),
        "log": trial.log,
    }
    if figures is not None:
        peak = figures.peak
        row |= {
            "kv_tokens": figures.kv_tokens,
            "max_model_len": figures.max_model_len,
            "ttft_s": figures.ttft,
            "tpot_s": figures.tpot,
            "output_tokens_per_s": round(figures.throughput, 3),
            "peak_bytes": peak.used_bytes if peak else None,
            "peak_share": round(peak.share, 4) if peak else None,
            "start_s": round(figures.start_seconds, 3),
            "failures": figures.failures,
            "preemptions": sum(sample.preemptions or 0 for sample in figures.samples),
        }
    return row


def _plain(changes: Mapping[str, Any]) -> str:
    return clean(" ".join(f"{name}={value}" for name, value in changes.items()))


def release_of(run: Run) -> Release:
    """The release that a run was made with."""
    return parse_release(str(run.asked.get("vllm_version", "0.32.0")))


def print_run(run: Run, trials: Sequence[Trial], ending: Mapping[str, Any] | None, console: Console) -> None:
    """The trials as a table, and how the run ended."""
    asked = run.asked
    limits = ", ".join(asked.get("limits", ())) or "none"
    console.print(line(f"run {run.id}, goal {asked.get('goal')}, limits {limits}, vLLM {asked.get('vllm_version')}"))
    console.print(table_of(run, trials))
    console.print()
    if not ending:
        console.print(line("The run has not ended; the same command goes on from here."))
        return
    for said in ending["why"]:
        console.print(line(said), soft_wrap=True)
    for said in ending["margin"]:
        console.print(line(f"Margin: {said}."), soft_wrap=True)
    counted = f"{ending['launches']} launches, {ending['started']} of them started, {ending['skipped']} not launched"
    console.print(line(f"{counted}; {ending['stopped']}."), soft_wrap=True)
    if ending["command"]:
        title = "Best command" if ending["met"] else "Nearest command"
        console.print()
        console.print(line(title))
        console.print(line(f"  {show_command(ending['command'])}"), soft_wrap=True)


def table_of(run: Run, trials: Sequence[Trial]) -> Table:
    """A row a trial: the step, what came of it, the four figures."""
    table = Table(box=None, pad_edge=False)
    for name in ("#", "step", "", "KV tokens", "predicted", "first token", "tokens/s", "peak"):
        right = name in {"#", "KV tokens", "predicted", "first token", "tokens/s", "peak"}
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "step")
    release = release_of(run)
    for trial in trials:
        step = shown(trial.proposal.step, release) or "as given"
        said = step if trial.kept or not trial.reason else f"{step}\n{trial.reason}"
        cells = (str(trial.number), said, outcome(trial), *_figures(trial))
        table.add_row(*(line(cell) for cell in cells))
    return table


def outcome(trial: Trial) -> str:
    """What became of a trial, in a word."""
    if trial.state is State.STARTED:
        return "kept" if trial.kept else "put back"
    return "not launched" if trial.state is State.SKIPPED else "failed"


def _figures(trial: Trial) -> tuple[str, str, str, str, str]:
    figures = trial.figures
    predicted = f"{trial.forecast.kv_tokens:,}" if trial.forecast.kv_tokens else ""
    if figures is None:
        return "", predicted, "", "", ""
    return (
        f"{figures.kv_tokens:,}" if figures.kv_tokens else "",
        predicted,
        f"{figures.ttft:.3g} s" if figures.ttft is not None else "",
        f"{figures.throughput:.1f}",
        f"{show_bytes(figures.peak.used_bytes)} ({figures.peak.share:.0%})" if figures.peak else "",
    )


def print_runs(runs: Sequence[Run], store: str, console: Console) -> None:
    """A line a run, the newest first."""
    if not runs:
        console.print(line(f"no run yet; {store} would keep it: kvroom tune -- vllm serve MODEL"), soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False)
    for name in ("run", "made", "goal", "ended", "command"):
        table.add_column(name, no_wrap=name != "command")
    for run in runs:
        ending = run.ending or {}
        ended = "no" if not run.ended else "met" if ending.get("met") else "not met"
        command = show_command(run.asked.get("command", ()))
        cells = (run.id, run.created[:16].replace("T", " "), str(run.asked.get("goal")), ended, command)
        table.add_row(*(line(cell) for cell in cells))
    console.print(table)
    console.print()
    console.print(line(f"{len(runs)} kept in {store}"), soft_wrap=True)
