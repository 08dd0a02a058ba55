"""Trace activation peaks over a grid of releases, models and settings: ``python scripts/traced_peaks.py``.

Writes the peaks to ``tests/data/traced/peaks.json`` and the factors that they are on the formulas of
``kvroom.ledger.activation`` to ``src/kvroom/data/vllm/traced/activation.json``, which the fast path takes.
Needs the engines of those releases (``kvroom engine install``); ``--release`` traces some anew and keeps the rest,
so that a new release is one command. ``--refit`` makes the factors anew from the peaks that are there.
One process answers all questions about a release.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.ledger.activation import cublas, forward_peaks, moe_workspace, sampler_peak
from kvroom.ledger.traced import kind_of
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request
from kvroom.tracing.engines import Engine, find_engine, kept_engines
from kvroom.tracing.question import Inquiry, inquiry_about
from kvroom.tracing.run import Answer, TraceFailed, ask
from kvroom.vllm.releases import parse_release

_ROOT = Path(__file__).parent.parent
PEAKS = _ROOT / "tests" / "data" / "traced" / "peaks.json"
FACTORS = _ROOT / "src" / "kvroom" / "data" / "vllm" / "traced" / "activation.json"
ABOUT_PEAKS = "Bytes of the profile run's peak above the weights, per GPU, as the release's own code allocates them on a pretended H200. Written by scripts/traced_peaks.py."
ABOUT_FACTORS = (
    "What was traced over what the formulas of kvroom.ledger.activation say. Written by scripts/traced_peaks.py."
)
CARD = "H200"
"""Large enough that nothing in the grid is short of memory; what it decides is that of every Hopper card."""
MODELS = {
    "meta-llama/Llama-3.1-8B-Instruct": 1,
    "Qwen/Qwen2.5-7B-Instruct": 1,
    "Qwen/Qwen3-8B": 1,
    "Qwen/Qwen3-32B": 4,
    "google/gemma-2-9b": 1,
    "google/gemma-3-27b-it": 1,
    "microsoft/phi-4": 1,
    "allenai/OLMo-2-1124-7B": 1,
    "CohereForAI/c4ai-command-r-v01": 1,
    "mistralai/Mixtral-8x7B-v0.1": 2,
    "Qwen/Qwen3-30B-A3B": 1,
    "zai-org/GLM-4.5-Air": 4,
    "MiniMaxAI/MiniMax-M2.5": 4,
    "openai/gpt-oss-20b": 1,
    "deepseek-ai/DeepSeek-V2-Lite": 1,
    "deepseek-ai/DeepSeek-V3": 8,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 2,
    "Qwen/Qwen3.5-27B": 1,
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": 1,
    "Qwen/Qwen3-8B-FP8": 1,
    "Qwen/Qwen3-30B-A3B-FP8": 1,
}
"""Models of the grid and the tensor-parallel size that each is traced at."""
WHOLE = ("google/gemma-3", "Qwen/Qwen3-Next", "Qwen/Qwen3.5", "nvidia/")
"""Models whose layers differ in more than their order; of the others a few layers peak as all of them do."""
LAYERS = 5
FORWARD, SAMPLER, BOTH = POINTS = (8, 8192), (1024, 2048), (1024, 8192)
"""``max_num_seqs`` and ``max_num_batched_tokens``: the forward pass alone, the sampler alone, and both."""
SHOWS = 1.05
"""How far above the forward pass of its own launch a sampler's peak must lie to be the sampler's."""


def plan_of(row: Mapping[str, Any]) -> Plan:
    """The launch of a row, with what the rules say of it."""
    words = [row["model"], "--max-num-seqs", str(row["seqs"]), "--max-num-batched-tokens", str(row["tokens"])]
    words += ["--max-model-len", "2048", "-tp", str(row["tp"])]
    if not row["model"].startswith(WHOLE):
        words += ["--hf-overrides", json.dumps({"num_hidden_layers": LAYERS})]
    return plan_tokens(words, {}, Request(gpu=f"{row['tp']}x {CARD}", vllm=row["release"], offline=True))


def plans(release: str, models: Sequence[str]) -> Iterator[tuple[dict[str, Any], Plan]]:
    """What is asked of ``release``, with the plan that the rules make of it."""
    for model in models:
        for sequences, tokens in POINTS:
            row = {"release": release, "model": model, "tp": MODELS[model], "seqs": sequences, "tokens": tokens}
            try:
                plan = plan_of(row)
            except KvroomError as error:
                print(f"{release} {model}: {error.problem}", file=sys.stderr)
                break
            if plan.prediction.settings is None:
                break
            yield row, plan


def traced(engine: Engine, release: str, models: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of one release."""
    asked = list(plans(release, models))
    if not asked:
        return []
    with ExitStack() as stack:
        inquiries = [inquiry_about(plan.prediction.setup, plan.tokens, offline=True, stack=stack) for _, plan in asked]
        questions = tuple(question for inquiry in inquiries for question in inquiry.questions)
        whole: Inquiry = replace(inquiries[0], questions=questions)
        answers = ask(engine, whole, lambda _: None)
    rows = []
    for (row, _), answer in zip(asked, answers, strict=True):
        if isinstance(answer, Answer):
            rows.append(row | {"activation": answer.activation, "runner": _runner(answer)})
        elif isinstance(answer, TraceFailed):
            where = f"{release} {row['model']} {row['seqs']}x{row['tokens']}"
            print(f"{where}: {answer.step}: {answer.problem[:300]}", file=sys.stderr)
    return rows


def _runner(answer: Answer) -> str:
    return "V2" if ".gpu." in answer.runner else "V1"


def factors(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """For each release its models' factors on the formulas of the forward pass and of the sampler."""
    points: dict[tuple[str, str], dict[tuple[int, int], Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        points[row["release"], row["model"]][row["seqs"], row["tokens"]] = row
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (release, _), traced_at in points.items():
        if {FORWARD, SAMPLER} <= traced_at.keys():
            found[release].append(_factor(traced_at[FORWARD], traced_at[SAMPLER]))
    return found


def _factor(forward: Mapping[str, Any], sampler: Mapping[str, Any]) -> dict[str, Any]:
    setup = plan_of(forward).prediction.setup
    shape = setup.shape
    share = _share(forward, "forward")
    hidden = _share(sampler, "forward") < SHOWS * share
    return {
        "architecture": shape.architecture,
        "kind": kind_of(shape),
        "quantized": shape.quantization is not None,
        "parallel": setup.args.tensor_parallel_size > 1,
        "runner": forward["runner"],
        "forward": round(share, 4),
        "sampler": None if hidden else round(_share(sampler, "sampler"), 4),
    }


def _share(row: Mapping[str, Any], phase: str) -> float:
    """What was traced over what the formula of that phase says, both without the workspace of cuBLAS."""
    prediction = plan_of(row).prediction
    setup, settings = prediction.setup, prediction.settings
    assert settings is not None
    settings = replace(settings, model_runner=row["runner"])
    kept = moe_workspace(setup.shape, setup.args, settings).expected
    traced = row["activation"] - cublas(setup.machine.device, settings).expected
    if phase == "sampler":
        return (traced - kept) / sampler_peak(setup.shape, setup.args, settings, setup.machine.device).expected
    first, routed = forward_peaks(setup.shape, setup.args, settings)
    share = (traced - kept) / routed.expected
    return min(share, traced / first.expected) if first.expected else share


def main() -> None:
    """Trace and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", action="append", help="trace this release alone; may be repeated")
    parser.add_argument("--model", action="append", choices=MODELS, help="trace this model alone; may be repeated")
    parser.add_argument("--refit", action="store_true", help="trace nothing, make the factors anew")
    asked = parser.parse_args()
    releases = asked.release or [engine.version.partition("+")[0] for engine in kept_engines()]
    rows = json.loads(PEAKS.read_text("utf-8"))["rows"] if PEAKS.exists() else []
    models = asked.model or list(MODELS)
    for release in () if asked.refit else releases:
        fresh = traced(find_engine(parse_release(release), None), release, models)
        print(f"{release}: {len(fresh)} of {len(models) * len(POINTS)}", file=sys.stderr)
        kept = [row for row in rows if row["release"] != release or row["model"] not in models]
        rows = sorted(kept + fresh, key=_order)
        write(PEAKS, ABOUT_PEAKS, "rows", rows)
    write(FACTORS, ABOUT_FACTORS, "releases", factors(rows))


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return parse_release(row["release"]), list(MODELS).index(row["model"]), row["tokens"], row["seqs"]


def write(path: Path, about: str, name: str, content: Any) -> None:
    """A JSON file with one line a row."""
    if isinstance(content, list):
        inner = "[\n" + ",\n".join("  " + json.dumps(row) for row in content) + "\n ]"
    else:
        parts = [
            f"  {json.dumps(key)}: [\n" + ",\n".join("   " + json.dumps(row) for row in rows) + "\n  ]"
            for key, rows in content.items()
        ]
        inner = "{\n" + ",\n".join(parts) + "\n }"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{{\n "about": {json.dumps(about)},\n {json.dumps(name)}: {inner}\n}}\n', "utf-8")


if __name__ == "__main__":
    main()
