"""Requests to run: lengths and arrivals, the same for the same seed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from kvroom.throughput.run import Request

_SEED = 20_261_130
SHAREGPT_SPREAD = 1.3
"""Standard deviation of the logarithm of ShareGPT's lengths as ``vllm bench`` samples them.

Only totals are published. Of 1.0, 1.15, 1.3 and 1.5 it brings the runs of ``benchmarks.throughput`` nearest: answers of
a few tokens, whose time per token is that of steps full of prompts, weigh in a mean over requests.
"""


def fixed(count: int, prompt: int, answer: int) -> list[Request]:
    """``count`` equal requests that are all there at the start."""
    return [Request(0.0, prompt, max(1, answer)) for _ in range(count)]


def spread(count: int, prompt: float, answer: float, sigma: float = SHAREGPT_SPREAD) -> list[Request]:
    """``count`` requests whose lengths vary as in conversations, with these means: shuffled log-normal quantiles."""
    rng = random.Random(_SEED)  # noqa: S311 - a workload, nothing secret
    prompts, answers = _lengths(count, prompt, sigma), _lengths(count, answer, sigma)
    rng.shuffle(prompts)
    rng.shuffle(answers)
    return [Request(0.0, one, other) for one, other in zip(prompts, answers, strict=True)]


def varied(count: int, prompt: int, answer: int) -> list[Request]:
    """``count`` requests whose answers are 0.7 to 1.3 times ``answer``, so that they do not end together."""
    rng = random.Random(_SEED + 2)  # noqa: S311 - a workload, nothing secret
    answers = [max(1, round(answer * (0.7 + 0.6 * (number + 0.5) / count))) for number in range(count)]
    rng.shuffle(answers)
    return [Request(0.0, prompt, each) for each in answers]


def capped(count: int, prompt: int, answer: float, most: int) -> list[Request]:
    """``count`` requests whose answers are evenly spread up to ``most`` tokens with this mean."""
    low = max(1.0, 2 * answer - most)
    step = (most - low) / max(count - 1, 1)
    return [Request(0.0, prompt, round(low + step * number)) for number in range(count)]


def poisson(requests: Sequence[Request], rate: float, span: float | None = None) -> list[Request]:
    """``requests`` arriving at random, ``rate`` a second on average; all within ``span`` seconds where given."""
    rng = random.Random(_SEED + 1)  # noqa: S311 - a workload, nothing secret
    now = 0.0
    for request in requests:
        request.arrival = now
        now += rng.expovariate(rate)
    last = requests[-1].arrival if requests else 0.0
    if span is not None and last:
        for request in requests:
            request.arrival *= span / last
    return list(requests)


def _lengths(count: int, mean: float, sigma: float) -> list[int]:
    """Quantiles of a log-normal distribution cut off at three and a half times its mean, scaled to ``mean``."""
    raw = [math.exp(sigma * _quantile((number + 0.5) / count)) for number in range(count)]
    limit = 3.5 * sum(raw) / count
    raw = [min(each, limit) for each in raw]
    scale = mean * count / sum(raw)
    return [max(1, round(each * scale)) for each in raw]


def _quantile(share: float) -> float:
    """The standard normal quantile (Acklam's rational approximation is more than this needs: a bisection)."""
    low, high = -6.0, 6.0
    for _ in range(40):
        middle = (low + high) / 2
        if 0.5 * (1 + math.erf(middle / math.sqrt(2))) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2
