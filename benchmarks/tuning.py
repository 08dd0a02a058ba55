"""How well ``kvroom tune`` searches: a grid of real launches beside one tune run over the same settings.

    python -m benchmarks.tuning --python ENGINE/bin/python --model FOLDER --out tuning.json

Every point of the grid is launched and measured as a trial is. The point that the run ends with and the grid's best
are then measured again, in turns, both servers up at once, since on a busy machine the best of many noisy figures
flatters itself. What is finished is kept in ``--out`` and not launched again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from kvroom.plans.request import Request
from kvroom.trials.figures import Load, Sample
from kvroom.trials.launch import PORT, Done, Order, carry_out
from kvroom.trials.measuring import ServerMeasures
from kvroom.trials.memory import HostMemory
from kvroom.trials.noise import noise_of
from kvroom.trials.prepare import Asked, Prepared, prepare
from kvroom.trials.run import Tuner
from kvroom.trials.standing import Judgement
from kvroom.trials.store import Store
from kvroom.trials.supervise import Process, Server, free_port, wait_until_ready
from kvroom.trials.trial import Forecast, Proposal, State, Trial

SEQS, BATCHED = (4, 8, 16, 32, 64, 128), (512, 1024, 2048, 4096)
LAUNCHES = 8
LOAD = Load(input_len=64, output_len=32, concurrency=64, requests=128)
ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
WORDS = (
    "--load-format",
    "dummy",
    "--enforce-eager",
    "--distributed-executor-backend",
    "uni",
    "--kv-cache-memory-bytes",
    "67108864",
)


class Told:
    """Prints what goes on."""

    def proposed(self, number: int, proposal: Proposal, forecast: Forecast, launches: int, most: int) -> None:
        """A line."""
        said = f"trial {number}, launch {launches} of {most}, predicted {forecast.status}"
        print(f"tune: {said}: {dict(proposal.step)}: {proposal.why}", flush=True)

    def stage(self, number: int, name: str) -> None:
        """Nothing."""

    def running(self, number: int, processes: tuple[Process, ...], container: str) -> None:
        """Nothing."""

    def came(self, trial: Trial) -> None:
        """A line."""
        said = f"{trial.figures.throughput:.1f} tokens/s" if trial.figures else trial.reason
        print(f"tune: trial {trial.number} {trial.state}: {said}", flush=True)

    def judged(self, number: int, judgement: Judgement) -> None:
        """A line."""
        print(f"tune: trial {number} {'kept' if judgement.kept else judgement.reason}", flush=True)

    def note(self, text: str) -> None:
        """A line."""
        print(f"tune: {text}", flush=True)


def command(python: str, model: str) -> list[str]:
    """The words that start the server."""
    assigned = [f"{name}={value}" for name, value in ENV.items()]
    module = ["env", "-u", "PYTHONPATH", python, "-m", "vllm.entrypoints.openai.api_server"]
    return [*assigned, *module, "--model", model, "--max-model-len", "4096", *WORDS]


def launch(words: list[str], changes: Mapping[str, int], folder: Path, load: Load, repeats: int) -> Done:
    """One point of the grid, measured as a trial."""
    plain = [word for word in words if "=" not in word]
    flags = [part for name, value in changes.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    folder.mkdir(parents=True, exist_ok=True)
    order = Order(
        number=0,
        words=(*plain, *flags, "--host", "127.0.0.1", "--port", PORT),
        env=ENV,
        log=folder / "server.log",
        load=load,
        repeats=repeats,
        timeout=600,
    )
    return carry_out(order, ServerMeasures(), HostMemory(1 << 40), Told())


def grid(words: list[str], kept: dict[str, Any], folder: Path, repeats: int) -> Iterator[None]:
    """Launch what is missing; yields after each, to be saved."""
    for seqs, batched in product(SEQS, BATCHED):
        name = f"{seqs}x{batched}"
        if name in kept:
            continue
        changes = {"max_num_seqs": seqs, "max_num_batched_tokens": batched}
        done = launch(words, changes, folder / f"grid-{name}", LOAD, repeats)
        rates = [sample.throughput for sample in done.samples]
        kept[name] = {"started": done.ready is not None, "start_s": done.ready, "throughput": rates}
        shown = ", ".join(f"{rate:.1f}" for rate in rates)
        print(f"grid: {name}: started {kept[name]['started']}, {shown} tokens/s", flush=True)
        yield


def tuned(ready: Prepared, folder: Path) -> dict[str, Any]:
    """One run of tune with its trials."""
    store = Store(f"sqlite:///{folder / 'tuning.sqlite3'}")
    tuner = Tuner(ready.question, store, ready.launcher, ready.foresight, folder, Told())
    ending, trials = tuner.tune()
    best = next(trial for trial in trials if trial.number == ending.best)
    return {
        "chosen": f"{best.changes['max_num_seqs']}x{best.changes['max_num_batched_tokens']}",
        "launches": ending.launches,
        "started": ending.started,
        "skipped": ending.skipped,
        "trials": [
            {
                "changes": dict(trial.changes),
                "state": str(trial.state),
                "kept": trial.kept,
                "predicted_kv_tokens": trial.forecast.kv_tokens,
                "kv_tokens": trial.figures.kv_tokens if trial.figures else None,
                "throughput": list(trial.throughputs),
            }
            for trial in trials
        ],
        "load": asdict(ready.question.load),
        "noise": noise_of(trial.throughputs for trial in trials if trial.state is State.STARTED).deviation,
    }


def side_by_side(words: list[str], names: tuple[str, str], folder: Path, rounds: int) -> list[list[float]]:
    """Output tokens a second of two points, measured in turns, the order changing from round to round."""
    rates: list[list[float]] = [[], []]
    plain = [word for word in words if "=" not in word]
    with contextlib.ExitStack() as stack:
        urls = []
        for at, name in enumerate(names):
            seqs, _, batched = name.partition("x")
            port = free_port()
            flags = ["--max-num-seqs", seqs, "--max-num-batched-tokens", batched, "--port", str(port)]
            log = folder / f"again-{at}-{name}.log"
            server = stack.enter_context(Server([*plain, "--host", "127.0.0.1", *flags], {**os.environ, **ENV}, log))
            urls.append(f"http://127.0.0.1:{port}")
            assert wait_until_ready(server, urls[-1], 600, HostMemory(1 << 40), lambda _: None) is not None
        for number in range(rounds):
            for at in (0, 1) if number % 2 else (1, 0):
                sample: Sample = ServerMeasures()(urls[at], LOAD)
                rates[at].append(sample.throughput)
    return rates


def report(kept: dict[str, Any]) -> None:
    """The figures."""
    points, run = kept["grid"], kept["tune"]
    means = {name: fmean(point["throughput"]) for name, point in points.items() if point["throughput"]}
    best = max(means, key=means.__getitem__)
    chosen = run["chosen"]
    launched = len(points) + run["launches"]
    started = sum(point["started"] for point in points.values()) + run["started"]
    print(
        f"\ngrid: {len(points)} launches, best {best} with {means[best]:.1f} tokens/s, worst {min(means.values()):.1f}"
    )
    noise = f"noise {run['noise'] or 0:.1%}"
    print(f"tune: {run['launches']} launches, {run['started']} started, chose {chosen}; {noise}")
    share = means.get(chosen, 0) / means[best]
    print(f"tune's point in the grid: {means.get(chosen, 0):.1f} tokens/s, {share:.1%} of the best")
    if "again" in kept:
        chosen_rate, best_rate = (fmean(rates) for rates in kept["again"]["rates"])
        share = chosen_rate / best_rate
        print(f"measured again in turns: {chosen_rate:.1f} against {best_rate:.1f}, {share:.1%} of the best")
    predicted = [(t["predicted_kv_tokens"], t["kv_tokens"]) for t in run["trials"] if t["kv_tokens"]]
    exact = sum(told == came for told, came in predicted)
    print(f"KV tokens predicted exactly: {exact} of {len(predicted)}; launches that started: {started} of {launched}")


def main() -> None:
    """The whole benchmark, or what is left of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the interpreter that has vLLM")
    parser.add_argument("--model", required=True, help="a small model's folder")
    parser.add_argument("--out", type=Path, required=True, help="where figures are kept")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--vllm", default=None)
    asked = parser.parse_args()
    kept: dict[str, Any] = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {"grid": {}}
    folder = asked.out.with_suffix(".runs").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    words = command(asked.python, asked.model)

    def save() -> None:
        asked.out.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")

    if "tune" not in kept:
        wishes = Asked(
            goal="throughput",
            request=Request(vllm=asked.vllm, offline=True),
            repeats=asked.repeats,
            max_trials=LAUNCHES,
            input_len=LOAD.input_len,
            output_len=LOAD.output_len,
            concurrency=LOAD.concurrency,
            requests=LOAD.requests,
        )
        kept["tune"] = tuned(prepare(words, wishes), folder)
        save()
    for _ in grid(words, kept["grid"], folder, asked.repeats):
        save()
    if "again" not in kept:
        means = {name: fmean(point["throughput"]) for name, point in kept["grid"].items() if point["throughput"]}
        names = (kept["tune"]["chosen"], max(means, key=means.__getitem__))
        rates = side_by_side(words, names, folder, asked.rounds) if names[0] != names[1] else [[1.0], [1.0]]
        kept["again"] = {"points": names, "rates": rates}
        save()
    report(kept)


if __name__ == "__main__":
    main()
