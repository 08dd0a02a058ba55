"""How far real steps are from the roofline: factors fitted on measured runs, with how wide they scatter.

``data/sizing/throughput.json`` is made by ``python -m benchmarks.throughput --fit`` from the runs in
``benchmarks/throughput_runs.json``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Factors:
    """One set of factors."""

    bandwidth: float = 0.78
    """Of the memory bandwidth, the share that a step of decoding reaches."""
    compute: float = 0.6
    """Of the arithmetic rate, the share that long batches reach."""
    attention: float = 0.35
    """The same inside attention."""
    overlap: float = 0.3
    """Of the lesser of reading and computing, the share that does not hide behind the other."""
    unpack: float = 0.85
    """Of ``bandwidth`` and ``compute``, what is left where weights are unpacked first."""
    experts: float = 0.8
    """Of ``bandwidth`` and ``compute``, what is left in routed experts."""
    step: float = 1.5e-3
    """Seconds of every step: scheduling, sampling, sending tokens out."""
    layer: float = 2.0e-5
    """Seconds that each layer takes however little it does."""
    request: float = 1.0e-5
    """Seconds for each sequence in a step."""
    logits: float = 16.0
    """Bytes that the sampler moves for each logit."""
    reduce_fabric: float = 1.2e-5
    """Seconds of latency of an all-reduce over NVLink and the like."""
    reduce_pcie: float = 4.0e-5
    """The same over PCIe."""
    link: float = 0.6
    """Of the link's rate, the share that an all-reduce reaches."""
    link_pcie: float = 0.3
    """The same over PCIe."""
    steep: float = 0.3
    """How the share of arithmetic falls with a card's rate: by (312 TFLOPS / rate) to this power."""
    falls: float = 0.05
    """How the share of bandwidth falls with a card's bandwidth: by (2 TB/s / bandwidth) to this power."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The factors, and what the runs say about their error."""

    factors: Factors
    tpot: tuple[float, float]
    """Measured over predicted time per output token: the interval that holds 80 of 100 runs."""
    ttft: tuple[float, float]
    throughput: tuple[float, float]
    after_one: tuple[float, float]
    """The same for TPOT and throughput once one run on that machine was measured."""
    runs: int
    cards: tuple[str, ...]
    """Cards that runs were measured on."""


@cache
def fitted() -> Fit:
    """The packaged fit."""
    data = json.loads(files("kvroom.data.sizing").joinpath("throughput.json").read_text("utf-8"))
    names = {each.name for each in fields(Factors)}
    return Fit(
        Factors(**{name: value for name, value in data["factors"].items() if name in names}),
        tuple(data["intervals"]["tpot"]),
        tuple(data["intervals"]["ttft"]),
        tuple(data["intervals"]["throughput"]),
        tuple(data["intervals"]["after_one"]),
        data["runs"],
        tuple(data["cards"]),
    )
