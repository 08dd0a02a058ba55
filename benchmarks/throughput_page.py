"""The section of ``docs/accuracy.md`` on speeds: what ``benchmarks.throughput`` kept in ``throughput.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "throughput.json"
RUNS = Path(__file__).parent / "throughput_runs.json"

_HEAD = """
## Speeds

`python -m benchmarks.throughput` predicts {runs} public runs of `vllm bench` and the like, each card's
with factors that were fitted without them (`--fit`); `benchmarks/throughput_runs.json` names every source.
Errors are the mean of the sizes of relative errors.

| card | runs | TPOT, mean error | tokens/s, mean error |
| --- | --- | --- | --- |
"""
_TRACES = """
The runs whose requests are public one by one, predicted over measured:

| run | TPOT | tokens/s | TTFT |
| --- | --- | --- | --- |
"""
_TAIL = """
The interval holds {tpot:.0%} of TPOTs and {throughput:.0%} of rates on cards that neither the fit nor the interval has
seen.
After one measured run (the middle load of the same card, model and storage) the error on the other loads is
{after_tpot} % of TPOT and {after_rate} % of tokens/s on average, {median_tpot} % and {median_rate} % in the median,
over {pairs} runs.
"""


def speeds() -> str:
    """The section as Markdown."""
    kept: dict[str, Any] = json.loads(KEPT.read_text("utf-8"))
    runs = json.loads(RUNS.read_text("utf-8"))["runs"]
    lines = [
        _line(name.removeprefix("NVIDIA "), max(each["runs"] for each in card.values()), card)
        for name, card in kept["cards"].items()
    ]
    whole = {name: {"mean": value} for name, value in kept["by_card"].items()}
    lines += [_line("mean of the cards", "", whole), _line("mean of the runs", len(runs), kept["all"])]
    traces = [
        f"| {name} | {each['tpot']:.2f} | {each['throughput']:.2f} | {each['ttft']:.2f} |\n"
        for name, each in kept["traces"].items()
    ]
    after = kept["after_one"]
    tail = _TAIL.format(
        **kept["coverage_of_cards"],
        after_tpot=after["tpot"]["mean"],
        after_rate=after["throughput"]["mean"],
        median_tpot=after["tpot"]["median"],
        median_rate=after["throughput"]["median"],
        pairs=after["tpot"]["runs"],
    )
    return _HEAD.format(runs=len(runs)) + "".join(lines) + _TRACES + "".join(traces) + tail


def _line(name: str, runs: int | str, errors: dict[str, dict[str, float]]) -> str:
    shown = [f"{errors[figure]['mean']} %" if figure in errors else "-" for figure in ("tpot", "throughput")]
    return f"| {' | '.join([name, str(runs), *shown])} |\n"
