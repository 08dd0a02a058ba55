"""How near measured kernels come to measured runs, beside the roofline on the same runs.

python -m benchmarks.throughput_tables   # needs aiconfigurator: pip install 'kvroom[perf]'
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from benchmarks.throughput import RESULTS, RUNS, Case, _case, _requests, ratios, summary
from kvroom.ledger.predict import Prediction
from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request as Asked
from kvroom.throughput.aiconfigurator import Aiconfigurator
from kvroom.throughput.factors import Factors, fitted
from kvroom.throughput.run import run
from kvroom.throughput.tables import KernelTables, NotInTables, TabledEngine

FIGURES = ("tpot", "throughput")


@dataclass(frozen=True)
class Told:
    """Predicted over measured of one run: by kernels, and by the roofline fitted without that card."""

    card: str
    load: str
    """``at a limit`` of requests at once, or ``as they come``: most of them all at the start."""
    kernels: dict[str, float]
    roofline: dict[str, float]


def by_kernels(case: Case, tables: KernelTables) -> dict[str, float]:
    """Predicted over measured with steps that ``tables`` time."""
    engine = TabledEngine(case.costs, case.card, fitted().factors, case.limits, tables=tables)
    concurrency, dp = case.raw.get("concurrency"), case.costs.dp
    found = run(_requests(case.raw, dp), case.limits, engine.step, -(-concurrency // dp) if concurrency else None)
    told = {"tpot": found.tpot, "throughput": found.throughput * dp}
    return {name: told[name] / case.measured[name] for name in FIGURES if name in case.measured}


def told() -> tuple[list[Told], dict[str, int]]:
    """All runs that the tables can tell, and how many they cannot, by reason."""
    reader, found, untold = Aiconfigurator(), [], {}
    others = {card: Factors(**each) for card, each in json.loads(RESULTS.read_text("utf-8"))["without"].items()}
    for raw in json.loads(RUNS.read_text("utf-8"))["runs"]:
        case = _case(raw)
        try:
            kernels = by_kernels(case, reader.open(_prediction(raw), offline=True))
        except NotInTables as error:
            untold[str(error)] = untold.get(str(error), 0) + 1
            continue
        roofline = ratios(case, others.get(case.card_name, fitted().factors))
        load = "at a limit" if raw.get("concurrency") else "as they come"
        found.append(Told(case.card_name, load, kernels, {name: roofline[name] for name in kernels}))
        print(f"{case.id}: " + ", ".join(f"{name} x {value:.2f}" for name, value in kernels.items()))
    return found, untold


def _prediction(raw: dict[str, object]) -> Prediction:
    gpu = f"{raw['gpus']}x {raw['gpu']}"
    asked = Asked(gpu=gpu, vllm=str(raw["vllm"]), offline=True, assume_quantization=raw.get("assume"))  # type: ignore[arg-type]
    return plan_tokens([raw["model"], *raw["flags"]], {}, asked).prediction  # type: ignore[list-item, misc]


def main() -> None:
    """Print the mean errors by card, by load and over all, and what the tables do not know."""
    found, untold = told()
    for group in [*sorted({each.card for each in found}), "at a limit", "as they come", ""]:
        rows = [each for each in found if group in ("", each.card, each.load)]
        print(f"\n{group or 'all'}: {len(rows)} runs")
        for name in FIGURES:
            for way in ("kernels", "roofline"):
                errors = summary([getattr(each, way)[name] for each in rows if name in getattr(each, way)])
                print(f"  {name} by {way}: mean {errors['mean']} %, median {errors['median']} %")
    print()
    for reason, count in sorted(untold.items(), key=lambda item: -item[1]):
        print(f"not told: {count} runs: {reason}")


if __name__ == "__main__":
    main()
