"""The figures of a trial: what one load measured, over repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import fmean, median
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Load:
    """The requests by which every trial of a run is measured; the same for all, so that they compare."""

    input_len: int = 128
    """Tokens of a prompt."""
    output_len: int = 64
    """Tokens that each request asks for."""
    concurrency: int = 8
    """Requests in flight."""
    requests: int = 16

    def warm_up(self) -> Load:
        """Requests before it that do not count: as many as are in flight, so that every size of batch was seen."""
        return replace(self, requests=min(self.requests, self.concurrency))

    def words(self) -> str:
        """The load in words, for people."""
        return f"{self.requests} requests of {self.input_len} + {self.output_len} tokens, {self.concurrency} at once"


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run of the load measured; seconds, tokens, tokens a second. None where nothing tells."""

    ttft: float | None
    """Median time to the first token."""
    tpot: float | None
    """Median time for each further token."""
    throughput: float
    """Output tokens a second."""
    failures: int = 0
    """Requests that got no proper answer."""
    kv_tokens: int | None = None
    """Of the pool, as the server claims."""
    kv_peak: float | None = None
    """Largest share of the pool in use, 0 to 1."""
    preemptions: int | None = None
    waiting: int | None = None
    """Most requests that waited."""
    problem: str = ""
    """Why requests failed, one sentence."""


class Measures(Protocol):
    """Whatever puts the load on a server and measures."""

    def __call__(self, url: str, load: Load) -> Sample:
        """What the server at ``url`` made of ``load``; raises nothing for a server that fails."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory that was seen in use."""

    used_bytes: int
    total_bytes: int
    """Of the GPU, or of the machine where the server runs on the CPU."""
    device: str = "gpu"
    """``gpu``: of one GPU; ``cpu``: the resident memory of the server's processes."""

    @property
    def share(self) -> float:
        """Of the total, 0 to 1."""
        return self.used_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a trial measured: the four figures and what explains them."""

    kv_tokens: int | None
    """Available KV tokens."""
    max_model_len: int | None
    """The length that is served."""
    peak: Peak | None
    start_seconds: float
    """From the launch until it could serve."""
    samples: tuple[Sample, ...] = ()

    @property
    def throughput(self) -> float:
        """Output tokens a second, the mean of the repeats; 0 without any."""
        return fmean(sample.throughput for sample in self.samples) if self.samples else 0.0

    @property
    def ttft(self) -> float | None:
        """Seconds to the first token: the median, over the repeats."""
        return _median([sample.ttft for sample in self.samples])

    @property
    def tpot(self) -> float | None:
        """Seconds for each further token: the median, over the repeats."""
        return _median([sample.tpot for sample in self.samples])

    @property
    def failures(self) -> int:
        """Requests that failed, over all repeats."""
        return sum(sample.failures for sample in self.samples)

    @property
    def pool_was_full(self) -> bool:
        """Whether the KV pool held requests back: it filled, or requests were preempted."""
        return any((sample.preemptions or 0) > 0 or (sample.kv_peak or 0) >= 0.95 for sample in self.samples)

    def data(self) -> dict[str, Any]:
        """The figures as they are stored."""
        return asdict(self)


def figures_of(data: Mapping[str, Any]) -> Figures:
    """The figures that ``Figures.data`` wrote; KeyError or TypeError for anything else."""
    peak = data["peak"]
    known = {each.name for each in fields(Sample)}
    samples = (Sample(**{name: value for name, value in row.items() if name in known}) for row in data["samples"])
    return Figures(
        data["kv_tokens"],
        data["max_model_len"],
        Peak(**peak) if peak else None,
        float(data["start_seconds"]),
        tuple(samples),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
