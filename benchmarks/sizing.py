"""How fast the search of ``kvroom size`` is: whole searches, and candidates a second without anything ruled out.

python -m benchmarks.sizing            # one process
python -m benchmarks.sizing --jobs 4   # the same searches in processes
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from kvroom.plans.request import Request
from kvroom.sizing.judge import Judge
from kvroom.sizing.layouts import counts, layouts
from kvroom.sizing.need import Need
from kvroom.sizing.problem import NATIVE, Problem, usual_devices
from kvroom.sizing.search import search
from kvroom.sizing.workers import search_in_processes

SEARCHES = (
    ("meta-llama/Llama-3.1-8B-Instruct", 32768, 16),
    ("Qwen/Qwen3-32B", 32768, 16),
    ("meta-llama/Llama-3.1-70B-Instruct", 32768, 32),
    ("openai/gpt-oss-120b", 65536, 32),
    ("Qwen/Qwen3-235B-A22B", 32768, 64),
    ("deepseek-ai/DeepSeek-V3", 65536, 32),
)


def main() -> None:
    """Print a line for each search, and the rate of the ledger over every candidate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    jobs = parser.parse_args().jobs
    devices = usual_devices()
    for model, context, concurrency in SEARCHES:
        wall, cpu = time.perf_counter(), time.process_time()
        problem = _problem(model, context, concurrency)
        found = search(problem, devices) if jobs == 1 else search_in_processes(problem, devices, jobs)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        decided = found.judged + found.ruled_out
        print(
            f"{model}: {len(found.options)} options of {decided:,} candidates ({found.judged:,} through the ledger) "
            f"on {len(devices)} cards in {wall:.2f} s ({cpu:.2f} s of CPU): {decided / wall:,.0f} a second"
        )
    if jobs == 1:
        _rate()
    else:
        _scaling(jobs)


def _rate() -> None:
    """Every candidate of one model on every card through the ledger, none ruled out."""
    problem = _problem("Qwen/Qwen3-8B", 32768, 16)
    judge = Judge(problem.base.release)
    wall, cpu = time.perf_counter(), time.process_time()
    for level in problem.levels:
        for gpus in counts(8, 8):
            for way in layouts(level.shape, gpus, 8):
                args = problem.args(level, way)
                for device in usual_devices():
                    judge(level.shape, args, device, gpus)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"every candidate through the ledger: {judge.judged:,} in {wall:.2f} s ({cpu:.2f} s of CPU), ", end="")
    print(f"{judge.judged / wall:,.0f} a second, {judge.judged / cpu:,.0f} a second of CPU")


def _scaling(jobs: int) -> None:
    """A search of seconds in one process and in ``jobs``: starting a process takes half a second."""
    seconds = []
    for count in (1, jobs):
        problem = replace(
            _problem("Qwen/Qwen3-235B-A22B", 32768, 256), most=64, variants=(NATIVE, "fp8", "w4a16", "awq")
        )
        wall = time.perf_counter()
        search_in_processes(problem, usual_devices(), count)
        seconds.append(time.perf_counter() - wall)
    print(f"a large search: {seconds[0]:.1f} s in one process, {seconds[1]:.1f} s in {jobs}, ", end="")
    print(f"{seconds[0] / seconds[1]:.2f} times as fast")


def _problem(model: str, context: int, concurrency: int) -> Problem:
    return Problem((model,), Need(context, context, concurrency), request=Request(offline=True))


if __name__ == "__main__":
    main()
