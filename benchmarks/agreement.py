"""``kvroom verify`` beside ``vllm bench serve``, on one load: ``python -m benchmarks.agreement [ROUNDS]``.

A server that gives each of eight seats a token every 25 ms, so that nothing but the measuring differs. It needs the
environment of the engine tests (``make engine``), and prints kvroom's rate over vLLM's, round by round.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from tests.engine import tiny
from tests.engine.bench import Bench, ours, paced
from tests.engine.serving import interpreter

REQUESTS, SEATS = 16, 8


def ratios(rounds: int, folder: Path) -> list[float]:
    """Output tokens a second as kvroom measures them over what vLLM's client says, each round."""
    found = []
    with paced() as url:
        bench = Bench(url, tiny.make(folder, interpreter()), folder, REQUESTS, SEATS)
        for seed in range(rounds):
            bench.run()
            theirs = bench.result()["output_throughput"]
            found.append(ours(url, REQUESTS, SEATS, seed).output_rate / theirs)
        bench.end()
    return found


def main() -> None:
    """Print the ratios and their mean."""
    with tempfile.TemporaryDirectory() as folder:
        found = ratios(int(sys.argv[1]) if len(sys.argv) > 1 else 5, Path(folder))
    print(" ".join(f"{each:.3f}" for each in found))
    print(f"mean {statistics.mean(found):.3f}")


if __name__ == "__main__":
    main()
