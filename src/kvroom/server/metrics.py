"""What a vLLM server says about itself at ``/metrics``, whichever release and names (``data/vllm/metrics.json``)."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kvroom.server.extra import required

_FIGURE = 2**53


@dataclass(frozen=True, slots=True)
class Claim:
    """The KV cache as the server describes it (``vllm:cache_config_info``), of one engine."""

    block_size: int | None = None
    num_blocks: int | None = None
    tokens: int | None = None
    """``kv_cache_size_tokens``, where the release says it."""
    prefix_caching: bool | None = None

    @property
    def most_tokens(self) -> int | None:
        """Tokens that the server says it holds: its own figure, else blocks times their size."""
        if self.tokens is not None:
            return self.tokens
        return None if self.num_blocks is None or self.block_size is None else self.num_blocks * self.block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The figures at one moment; None where the server does not show one."""

    at: float
    """On the clock of ``time.perf_counter``."""
    running: int | None = None
    waiting: int | None = None
    kv_use: float | None = None
    """0 to 1, of the fullest engine."""
    preemptions: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    prefix_hit_rate: float | None = None
    """V0 shows the rate alone."""
    engines: int = 1
    claim: Claim | None = None

    @property
    def known(self) -> bool:
        """Whether it is vLLM that speaks."""
        return self.running is not None


@cache
def _names() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("kvroom.data.vllm").joinpath("metrics.json").read_text("utf-8"))
    return data


@cache
def _wanted() -> tuple[str, ...]:
    names = _names()
    kinds = (*names["gauges"].values(), *names["counters"].values())
    return (*(entry["name"] for kind in kinds for entry in kind), names["cache"]["info"])


def parse_metrics(text: str, at: float | None = None) -> Sample:
    """The figures in the Prometheus text ``text``; ValueError where that is none.

    Only the lines that are needed are parsed: a server shows several hundred.
    """
    lines = [line for line in text.splitlines() if line.startswith(_wanted())]
    parse = required("prometheus_client.parser").text_string_to_metric_families
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parse("\n".join(lines) + "\n"):
        for sample in family.samples:
            if math.isfinite(sample.value) and abs(sample.value) < _FIGURE:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    gauges = {name: _values(found, entries) for name, entries in _names()["gauges"].items()}
    counters = {name: _sum(_values(found, entries)) for name, entries in _names()["counters"].items()}
    waiting, swapped = _sum(gauges["waiting"]), _sum(gauges["swapped"])
    return Sample(
        at=time.perf_counter() if at is None else at,
        running=_sum(gauges["running"]),
        waiting=None if waiting is None else waiting + (swapped or 0),
        kv_use=max(gauges["kv_use"], default=None),
        prefix_hit_rate=max((rate for rate in gauges["prefix_hit_rate"] if rate >= 0), default=None),
        engines=max(len(gauges["running"]), 1),
        claim=_claim(found.get(_names()["cache"]["info"], [])),
        **counters,
    )


def _values(found: dict[str, list[tuple[dict[str, str], float]]], entries: list[dict[str, Any]]) -> list[float]:
    for entry in entries:
        if entry["name"] in found:
            return [value for _, value in found[entry["name"]]]
    return []


def _sum(values: list[float]) -> int | None:
    return int(sum(values)) if values else None


def _claim(found: list[tuple[dict[str, str], float]]) -> Claim | None:
    """The claim of the engine with the fewest blocks."""
    claims = []
    for labels, _ in found:
        said = {
            key: next((labels[entry["name"]] for entry in entries if entry["name"] in labels), "")
            for key, entries in _names()["cache"].items()
            if key != "info"
        }
        block, blocks, tokens = (_integer(said[key]) for key in ("block_size", "num_blocks", "tokens"))
        caching = {"True": True, "False": False}.get(said["prefix_caching"])
        claims.append(Claim(block, blocks, tokens, caching))
    return min(claims, key=lambda claim: claim.num_blocks or _FIGURE, default=None)


def _integer(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
