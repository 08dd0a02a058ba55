"""Start-up time, memory and plans a second on this machine: ``make benchmark``.

Each figure is the median of several fresh processes, beside the bare interpreter's.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import replace

PYTHON = sys.executable
COLD = ["-m", "kvroom", "plan", "Qwen/Qwen3-8B", "--gpu", "RTX 4090", "--max-model-len", "32768", "--offline"]


def wall(arguments: list[str], runs: int = 7) -> float:
    """Median seconds of ``python ARGUMENTS`` in a fresh process."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run([PYTHON, *arguments], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def peak_mebibytes() -> float:
    """Peak memory of the largest child so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def plans_a_second(seconds: float = 2.0) -> float:
    """Whole predictions a second in this process, every one with another length and utilisation."""
    from kvroom.ledger.predict import predict
    from kvroom.plans.make import plan

    setup = plan("Qwen/Qwen3-8B", gpu="RTX 4090", max_model_len=32768, offline=True).prediction.setup
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        length = 1024 + 16 * (count % 2000)
        args = replace(setup.args, max_model_len=length, gpu_memory_utilization=0.5 + (count % 40) / 100)
        predict(replace(setup, args=args))
        count += 1
    return count / (time.perf_counter() - begin)


def main() -> None:
    """Print the figures as JSON."""
    bare = wall(["-c", "pass"])
    figures = {
        "python_s": bare,
        "import_kvroom_s": wall(["-c", "import kvroom"]),
        "help_s": wall(["-m", "kvroom", "--help"]),
        "cold_plan_s": wall(COLD),
        "cold_plan_peak_mib": peak_mebibytes(),
        "plans_per_second": plans_a_second(),
    }
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}, indent=1))


if __name__ == "__main__":
    main()
