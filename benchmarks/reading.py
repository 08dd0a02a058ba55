"""Megabytes of log read a second of processor time, and the memory it takes: ``python -m benchmarks.reading``.

The logs are made here: a start followed by requests and statistics, the same start again and again, and
statistics only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

START = (Path(__file__).parent.parent / "docs" / "examples" / "serving.log").read_bytes()
REQUEST = b'(APIServer pid=1) INFO:     127.0.0.1:53482 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
STATISTICS = (
    b"(APIServer pid=1) INFO 11-03 10:10:54 [loggers.py:127] Engine 000: Avg prompt throughput: 123.4 tokens/s, Avg"
    b" generation throughput: 55.1 tokens/s, Running: 8 reqs, Waiting: 2 reqs, GPU KV cache usage: 77.1%, Prefix cache"
    b" hit rate: 12.3%\n"
)
MIXES = {
    "requests and statistics": (START, REQUEST * 20 + STATISTICS),
    "starts only": (START, START),
    "statistics only": (START, STATISTICS * 20),
}
SIZES = (10, 100)
"""Megabytes."""


def parts(first: bytes, rest: bytes, size: int) -> Iterator[bytes]:
    """``first``, then ``rest`` until there are ``size`` bytes."""
    yield first
    written = len(first)
    while written < size:
        yield rest
        written += len(rest)


def measured(path: Path) -> dict[str, float]:
    """Processor seconds and peak memory of reading ``path`` in a process of its own."""
    code = (
        "import resource, sys, time; from kvroom.doctor.diagnose import open_log; from pathlib import Path;"
        "begin = time.process_time(); open_log(Path(sys.argv[1]));"
        "print(time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    seconds, mebibytes = map(float, done.stdout.split())
    return {
        "cpu_s": round(seconds, 2),
        "mb_per_cpu_s": round(path.stat().st_size / 1e6 / seconds),
        "peak_mib": mebibytes,
    }


def main() -> None:
    """Print the figures as JSON."""
    figures: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vllm.log"
        for name, (first, rest) in MIXES.items():
            for size in SIZES:
                with path.open("wb") as file:
                    file.writelines(parts(first, rest, size * 1_000_000))
                figures.setdefault(name, {})[f"{size} MB"] = measured(path)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
