"""How fast a server was by its own log: the lines of statistics that it writes every few seconds.

Each line counts its running requests, the tokens a second since the line before, and the cache in use. A running
request gets one token a step, so requests over tokens a second is the time of a step, which is held against the
step that the roofline predicts for as many requests of that context.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from kvroom.errors import UsageError, short
from kvroom.files import open_stream, reason
from kvroom.logs.serving import Moment, read_moment
from kvroom.throughput.estimate import Engine
from kvroom.throughput.scale import Scale, believable

_WRITTEN = b"Avg generation throughput"
_ENGINE = re.compile(rb"Engine (\d{1,4}): Avg")
_TOGETHER = re.compile(rb"(\d{1,4}) Engines Aggregated")
"""Replicas whose requests and rates one line adds up, and whose use of the cache it averages."""
_LONGEST = 65536
_FEWEST, _MOST = 3, 2000
"""Stretches that are needed, and that count: the last hours of a server that has run for weeks."""
_STEADY = 0.25
"""Share by which the requests of two lines in turn may differ, so that their mean is what ran between them."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A stretch between two lines of one engine in which about as many requests ran."""

    running: float
    context: float
    """Tokens in the cache for each of them."""
    step: float
    """Seconds of a step."""
    chunk: float
    """Prompt tokens computed in it."""


def paces(lines: Iterable[bytes], pool_tokens: int) -> list[Pace]:
    """The newest steady stretches of a log; ``pool_tokens`` is what 100 % of the cache is."""
    found: deque[Pace] = deque(maxlen=_MOST)
    before: dict[bytes, Moment] = {}
    for line in lines:
        if _WRITTEN not in line or (now := read_moment(0, line)) is None:
            continue
        named, together = _ENGINE.search(line), _TOGETHER.search(line)
        replicas = int(together[1]) or 1 if together else 1
        engine = named[1] if named else b""
        last, before[engine] = before.get(engine), now
        if last is None or not last.running or not now.running or not now.generation_tps:
            continue
        if abs(now.running - last.running) > _STEADY * last.running or now.preemptions or not now.kv_percent:
            continue
        running = (last.running + now.running) / 2
        step = running / now.generation_tps
        held = now.kv_percent / 100 * pool_tokens * replicas / now.running
        found.append(Pace(running / replicas, held, step, now.prompt_tps * step / replicas))
    return list(found)


def scale_of_log(engine: Engine, path: str) -> Scale:
    """What the log at ``path`` says of ``engine``'s steps.

    Raises UsageError where it cannot be read, holds too few steady lines, or tells of another launch.
    """
    try:
        with open_stream(Path(path).expanduser()) as file:
            found = paces(iter(lambda: file.readline(_LONGEST), b""), engine.limits.pool_tokens)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"--measured {short(path)} cannot be used: {reason(error)}.") from None
    if len(found) < _FEWEST:
        raise UsageError(
            f"--measured {short(path)} is no result of a benchmark, and as a log it holds {len(found)} stretches in "
            "which requests ran steadily.",
            f"At least {_FEWEST} are needed: lines of `Avg generation throughput` with requests running, one after "
            "the other. Or write concurrency=16,input=1024,output=128,tpot=12.3ms.",
        )
    told = [engine.step(max(1, round(pace.running)), pace.context, *_chunk(pace)) for pace in found]
    factor = median(pace.step / step for pace, step in zip(found, told, strict=True))
    return believable(factor, median(told), f"steps by {short(path)}")


def _chunk(pace: Pace) -> tuple[int, float]:
    """Prompt tokens of a step, and what they look back at: half of what the cache holds of a request."""
    chunk = round(pace.chunk)
    return chunk, pace.context / 2 if chunk else 0.0
