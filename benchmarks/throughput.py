"""How near predicted speeds are to measured ones, and the fit of the factors.

python -m benchmarks.throughput          # errors by card: as packaged, by other cards alone, after one run
python -m benchmarks.throughput --fit    # fit the factors anew and write them (minutes)
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from kvroom.ledger.predict import Prediction
from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request as Asked
from kvroom.throughput.card import Card, card_of
from kvroom.throughput.costs import Costs, costs_of
from kvroom.throughput.factors import Factors
from kvroom.throughput.run import Limits, Outcome, Request, run
from kvroom.throughput.scale import Scale
from kvroom.throughput.step import step_seconds
from kvroom.throughput.workload import capped, fixed, poisson, spread

HERE = Path(__file__).parent
RUNS = HERE / "throughput_runs.json"
PACKAGED = HERE.parent / "src" / "kvroom" / "data" / "sizing" / "throughput.json"
RESULTS = HERE / "throughput.json"
FIGURES = ("tpot", "throughput", "ttft")


@dataclass(frozen=True)
class Case:
    """One measured run, ready to be predicted."""

    id: str
    source: str
    card_name: str
    group: str
    """Card, count, model and storage: what one measured run calibrates."""
    costs: Costs
    card: Card
    limits: Limits
    raw: dict[str, Any]
    measured: dict[str, float]

    def predict(self, factors: Factors, scale: float = 1.0) -> Outcome:
        """The run with ``factors``, every step ``scale`` times as long."""
        dp = self.costs.dp
        requests = _requests(self.raw, dp)

        def step(decodes: int, context: float, chunk: int, before: float) -> float:
            return scale * step_seconds(self.costs, self.card, factors, decodes, context, chunk, before)

        concurrency = self.raw.get("concurrency")
        found = run(requests, self.limits, step, -(-concurrency // dp) if concurrency else None)
        return replace(found, throughput=found.throughput * dp)


def _requests(raw: dict[str, Any], dp: int) -> list[Request]:
    """The requests of one replica."""
    if "requests" in raw:
        made = [Request(arrival, prompt, answer) for arrival, prompt, answer in raw["requests"]]
    elif raw["lengths"] == "sharegpt":
        made = spread(raw["n"], raw["input"], raw["output"])
    elif raw["lengths"] == "upto600":
        made = capped(raw["n"], round(raw["input"]), raw["output"], 600)
    else:
        made = fixed(raw["n"], round(raw["input"]), round(raw["output"]))
    if raw["arrivals"] == "poisson":
        made = poisson(made, raw["rate"], raw.get("span"))
    return made[::dp]


def cases() -> list[Case]:
    """Every run of ``throughput_runs.json``."""
    return [_case(raw) for raw in json.loads(RUNS.read_text("utf-8"))["runs"]]


def _case(raw: dict[str, Any]) -> Case:
    asked = Asked(
        gpu=f"{raw['gpus']}x {raw['gpu']}", vllm=raw["vllm"], offline=True, assume_quantization=raw.get("assume")
    )
    prediction = plan_tokens([raw["model"], *raw["flags"]], {}, asked).prediction
    card = card_of(prediction.setup.machine.device)
    group = " ".join((card.name, str(raw["gpus"]), raw["model"], raw.get("assume", "")))
    return Case(
        raw["id"],
        raw["source"],
        card.name,
        group,
        costs_of(prediction),
        card,
        _limits(prediction, raw.get("pool_tokens")),
        raw,
        raw["measured"],
    )


def _limits(prediction: Prediction, pool: int | None) -> Limits:
    settings, found = prediction.settings, prediction.pool
    assert settings is not None
    assert found is not None
    tokens = pool or max(found.tokens, settings.max_model_len)
    return Limits(settings.max_num_seqs, settings.max_num_batched_tokens, tokens, settings.enable_prefix_caching)


def ratios(case: Case, factors: Factors) -> dict[str, float]:
    """Predicted over measured, for each figure that was measured."""
    found = case.predict(factors)
    return {name: getattr(found, name) / value for name, value in case.measured.items() if value}


def error(all_cases: list[Case], factors: Factors) -> float:
    """What the fit makes small: the mean size of the logarithm of predicted over measured.

    A card with a model weighs the root of its runs, throughput half of TPOT. Sizes, not squares: on rented machines
    some runs are off for reasons of their own, and shall not decide.
    """
    groups: dict[str, list[float]] = {}
    for case in all_cases:
        found = ratios(case, factors)
        for name, weight in (("tpot", 1.0), ("throughput", 0.5)):
            if name in found:
                groups.setdefault(case.group, []).append(weight * abs(math.log(found[name])))
    weights = [math.sqrt(len(group)) for group in groups.values()]
    return sum(w * sum(group) / len(group) for w, group in zip(weights, groups.values(), strict=True)) / sum(weights)


def telling(all_cases: list[Case]) -> list[Case]:
    """The cases that a fit looks at: of every card and model a light and a heavy load, and no more than are quick."""
    groups: dict[str, list[Case]] = {}
    for case in all_cases:
        groups.setdefault(case.group, []).append(case)
    chosen: list[Case] = []
    for group in groups.values():
        ordered = sorted(group, key=lambda case: case.measured.get("throughput", 0.0))
        quick = [case for case in ordered if case.raw.get("n", 300) <= 500] or ordered[:1]
        chosen += [*quick[:: max(1, len(quick) // 2)][:3]]
    return chosen


BOUNDS = {
    "bandwidth": (0.5, 0.95), "compute": (0.25, 0.9), "attention": (0.05, 0.6), "overlap": (0.0, 0.8),
    "unpack": (0.4, 1.0), "experts": (0.2, 1.0), "step": (1e-4, 1e-2), "layer": (1e-6, 1.5e-4),
    "request": (1e-6, 1e-4), "logits": (4.0, 90.0), "reduce_fabric": (3e-6, 5e-5), "reduce_pcie": (1e-5, 3e-4),
    "link": (0.1, 0.9), "link_pcie": (0.05, 0.9), "steep": (0.0, 0.8), "falls": (0.0, 0.5),
}  # fmt: skip


def fit(all_cases: list[Case], start: Factors, rounds: int = 4) -> Factors:
    """Factors that make ``error`` small: each in turn, in smaller and smaller steps."""
    best, least = start, error(all_cases, start)
    for turn in range(rounds):
        size = 1.35 ** (0.6**turn)
        for each in fields(Factors):
            low, high = BOUNDS[each.name]
            for factor in (size, 1 / size):
                while True:
                    value = min(high, max(low, max(getattr(best, each.name), low / 2 or 0.05) * factor))
                    trial = replace(best, **{each.name: value})
                    found = error(all_cases, trial) if value != getattr(best, each.name) else least
                    if found >= least - 1e-5:
                        break
                    best, least = trial, found
        sys.stderr.write(f"round {turn}: {least:.4f} {best}\n")
    return best


def left_out(all_cases: list[Case], start: Factors) -> dict[str, Factors]:
    """For each card the factors that the runs on all other cards give."""
    found = {}
    for name in sorted({case.card_name for case in all_cases}):
        others = telling([case for case in all_cases if case.card_name != name])
        found[name] = fit(others, start, 2)
        sys.stderr.write(f"without {name}\n")
    return found


def after_one(all_cases: list[Case], factors: Factors) -> dict[str, list[float]]:
    """Predicted over measured where the middle load of the same card, model and storage was measured first."""
    groups: dict[str, list[Case]] = {}
    for case in all_cases:
        if "tpot" in case.measured:
            groups.setdefault(case.group, []).append(case)
    found: dict[str, list[float]] = {"tpot": [], "throughput": []}
    for group in groups.values():
        ordered = sorted(group, key=lambda case: case.measured["tpot"])
        known = ordered[len(ordered) // 2]
        scale, near = 1.0, known.predict(factors).tpot
        for _ in range(5):  # longer steps let more requests meet, so that one division is not enough
            scale *= known.measured["tpot"] / known.predict(factors, scale).tpot
        for case in ordered:
            if case is known:
                continue
            told = Scale(scale, measured=True, near=near).at(case.predict(factors).tpot)
            outcome = case.predict(factors, told.factor)
            for name, listed in found.items():
                if name in case.measured:
                    listed.append(getattr(outcome, name) / case.measured[name])
    return found


def summary(values: list[float]) -> dict[str, float]:
    """Mean and median error in percent, and how many there are."""
    errors = sorted(100 * abs(value - 1) for value in values)
    return {
        "runs": len(errors),
        "mean": round(sum(errors) / len(errors), 1),
        "median": round(errors[len(errors) // 2], 1),
    }


def interval(by_card: dict[str, list[float]], share: float = 0.9) -> tuple[float, float]:
    """Factors on a prediction that hold ``share`` of what was measured, each card counting the same.

    Nine of ten of the runs at hand, since on a card that is not among them fewer are held: see coverage.
    """
    items = sorted((1 / value, 1 / len(values)) for values in by_card.values() for value in values)
    cut = (1 - share) / 2 * sum(weight for _, weight in items)
    low, high = _reached(items, cut), _reached(items[::-1], cut)
    return round(min(low, 1.0), 3), round(max(high, 1.0), 3)


def _reached(items: list[tuple[float, float]], weight: float) -> float:
    """The first value at which the weights so far add up to ``weight``."""
    for value, each in items:
        weight -= each
        if weight <= 1e-9:
            return value
    return items[-1][0]


def covered(values: list[float], bounds: tuple[float, float]) -> float:
    """The share of measured figures within ``bounds`` around the predicted one."""
    return sum(bounds[0] <= 1 / value <= bounds[1] for value in values) / max(len(values), 1)


def score(all_cases: list[Case], factors: Factors, others: dict[str, Factors]) -> dict[str, Any]:
    """Everything that the page tells: by card and over all, with the card's own runs left out of the fit."""
    rows: dict[str, dict[str, list[float]]] = {}
    for case in all_cases:
        for name, value in ratios(case, others.get(case.card_name, factors)).items():
            rows.setdefault(case.card_name, {}).setdefault(name, []).append(value)
    together = {name: [value for row in rows.values() for value in row.get(name, [])] for name in FIGURES}
    calibrated = after_one(all_cases, factors)
    both = {"all": [*calibrated["tpot"], *calibrated["throughput"]]}
    bounds = {name: interval(_of(rows, name)) for name in FIGURES}
    traces = [case for case in all_cases if "requests" in case.raw]
    return {
        "cards": {
            card: {name: summary(row[name]) for name in ("tpot", "throughput") if name in row}
            for card, row in sorted(rows.items())
        },
        "all": {name: summary(together[name]) for name in ("tpot", "throughput")},
        "traces": {
            case.id: {name: round(v, 3) for name, v in ratios(case, others.get(case.card_name, factors)).items()}
            for case in traces
        },
        "after_one": {name: summary(values) for name, values in calibrated.items()},
        "by_card": {name: _mean_by_card(rows, name) for name in ("tpot", "throughput")},
        "intervals": {**bounds, "after_one": interval(both, 0.8)},
        "coverage": {name: round(covered(together[name], bounds[name]), 3) for name in ("tpot", "throughput")},
        "coverage_of_cards": _held_out_coverage(rows),
    }


def _of(rows: dict[str, dict[str, list[float]]], name: str, without: str = "") -> dict[str, list[float]]:
    return {card: row[name] for card, row in rows.items() if name in row and card != without}


def _mean_by_card(rows: dict[str, dict[str, list[float]]], name: str) -> float:
    """The mean error in percent, each card counting the same."""
    means = [summary(values)["mean"] for values in _of(rows, name).values()]
    return round(sum(means) / len(means), 1)


def _held_out_coverage(rows: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """Coverage of each card's runs by the interval that the other cards give, over all cards."""
    found = {}
    for name in ("tpot", "throughput"):
        held = total = 0
        for card, row in rows.items():
            bounds = interval(_of(rows, name, card))
            held += sum(bounds[0] <= 1 / value <= bounds[1] for value in row.get(name, []))
            total += len(row.get(name, []))
        found[name] = round(held / total, 3)
    return found


def main() -> None:
    """Print the errors; with --fit make the packaged factors anew first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", action="store_true", help="fit the factors and write them")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--write", action="store_true", help="write errors and intervals of the factors as they are")
    asked = parser.parse_args()
    known = json.loads(PACKAGED.read_text("utf-8")) if PACKAGED.exists() else {"factors": {}}
    factors = Factors(**known["factors"])
    all_cases = cases()
    kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    without = {card: Factors(**each) for card, each in kept.get("without", {}).items()}
    if asked.fit:
        factors = fit(telling(all_cases), factors, asked.rounds)
        without = left_out(all_cases, factors)
    scores = score(all_cases, factors, without)
    if asked.fit or asked.write:
        PACKAGED.write_text(_packaged(all_cases, factors, scores), "utf-8")
        kept = {"without": {card: _short(each) for card, each in without.items()}, **scores}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    print(json.dumps(scores, indent=1))


def _short(factors: Factors) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in asdict(factors).items()}


def _packaged(all_cases: list[Case], factors: Factors, scores: dict[str, Any]) -> str:
    data = {
        "_about": "Factors of the roofline in kvroom.throughput, made by `python -m benchmarks.throughput --fit` from "
        "the public runs in benchmarks/throughput_runs.json. intervals: measured over predicted, about 80 of 100 runs "
        "on a card that neither the fit nor the interval has seen; after_one: on the same card and model once one "
        "other load was measured.",
        "factors": _short(factors),
        "intervals": scores["intervals"],
        "runs": len(all_cases),
        "cards": sorted({case.card_name for case in all_cases}),
    }
    return json.dumps(data, indent=1) + "\n"


if __name__ == "__main__":
    main()
