"""What somebody measured: ``vllm bench serve --save-result`` files, and figures written on the command line.

A server's log is read by ``kvroom.throughput.served``.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroom.errors import UsageError, short
from kvroom.files import read_limited, reason

_LARGEST = 64_000_000
_CURE = (
    "Write it as in --measured concurrency=16,input=1024,output=128,tpot=12.3ms, or name the file that "
    "`vllm bench serve --save-result` wrote, or the server's log."
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: requests at once, tokens, seconds."""

    concurrency: int
    prompt: int
    answer: int
    tpot: float


def read_measured(text: str) -> Measured | None:
    """The run that ``text`` writes or whose file it names, None where that file is a log.

    Raises UsageError where it is neither.
    """
    if "=" in text:
        return _from_words(text)
    try:
        data = json.loads(read_limited(Path(text).expanduser(), _LARGEST))
    except (ValueError, RecursionError):
        return None
    except (OSError, RuntimeError) as error:
        if getattr(error, "errno", None) in (errno.EFBIG, errno.EINVAL):  # a pipe, or too large for a result
            return None
        raise UsageError(f"--measured {short(text)} cannot be used: {reason(error)}.", _CURE) from None
    return _from_result(data, text)


def _from_words(text: str) -> Measured:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        name, value = name.strip(), value.strip().lower()
        number, factor = (value[:-2], 1e-3) if value.endswith("ms") else (value.removesuffix("s"), 1.0)
        if name == "tpot" and not value.endswith("s"):
            raise UsageError(f"--measured {short(text)}: {name} has no unit.", _CURE)
        if name not in {"concurrency", "input", "output", "tpot"} or name in found:
            raise UsageError(f"--measured {short(text)}: '{short(name, 30)}' is not expected.", _CURE)
        try:
            found[name] = float(number) * factor
        except ValueError:
            raise UsageError(f"--measured {short(text)}: '{short(value, 30)}' is no number.", _CURE) from None
    return _checked(found, text)


def _from_result(data: Any, name: str) -> Measured:
    """A result of ``vllm bench serve``: means over its requests; without a limit all of them came at once."""
    if not isinstance(data, dict):
        raise UsageError(f"--measured {short(name)} holds no result of a benchmark.", _CURE)
    count = data.get("completed") or data.get("num_prompts")
    at_once = data.get("max_concurrency") or count
    names = ("total_input_tokens", "total_output_tokens", "mean_tpot_ms")
    values = [value for value in (count, at_once, *(data.get(name) for name in names)) if _is_figure(value)]
    if len(values) < 5:
        raise UsageError(f"--measured {short(name)} lacks requests, tokens or mean_tpot_ms.", _CURE)
    rate = data.get("request_rate", "inf")
    if data.get("max_concurrency") is None and isinstance(rate, int | float) and rate < 1e6:
        raise UsageError(
            f"--measured {short(name)} was paced by --request-rate, which does not say how many ran at once.",
            "Measure with --max-concurrency.",
        )
    found = {
        "concurrency": float(at_once or 1),
        "input": data["total_input_tokens"] / count,
        "output": data["total_output_tokens"] / count,
        "tpot": data["mean_tpot_ms"] / 1e3,
    }
    return _checked(found, name)


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15


def _checked(found: dict[str, float], text: str) -> Measured:
    missing = {"concurrency", "input", "output", "tpot"} - found.keys()
    if missing:
        raise UsageError(f"--measured {short(text)}: {', '.join(sorted(missing))} is missing.", _CURE)
    if not all(0 < value < 1e9 for value in found.values()) or found["concurrency"] > 100_000:
        raise UsageError(f"--measured {short(text)}: a figure is out of reach.", _CURE)
    whole = {name: max(1, round(found[name])) for name in ("concurrency", "input", "output")}
    return Measured(whole["concurrency"], whole["input"], whole["output"], found["tpot"])
