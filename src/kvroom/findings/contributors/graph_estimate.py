"""KVR225: an estimate of the CUDA graphs is taken from the KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import estimating_graphs, overflow, short, shortage
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR225",
    "graph-estimate",
    Severity.WARNING,
    "What CUDA graphs are expected to take is subtracted before the KV cache is sized.",
    explanation(
        what="""
            Reads the estimate of CUDA graph memory, what it stands for in utilisation, and what the graphs
            really took; reports it where the KV cache is short, or where the estimate is far off.
            """,
        why="""
            The estimate comes from two captures for each kind of graph, and counts the second one for all
            sizes that follow. Graphs share a pool, so it can be several times too high.
            The rest stays unused on the card.
            A utilisation that was tuned on an older release gives a smaller cache for the same reason.
            """,
        example="""
            On a 120 GiB machine 0.80 stands for 0.758: 5 GiB go to the estimate, and 196,608 tokens miss
            the cache by 0.75 GiB. At 0.85 they fit.
            """,
        cure="""
            The utilisation that vLLM suggests in the same lines; fewer capture sizes
            (`--max-cudagraph-capture-size`, `--cudagraph-capture-sizes`); `--enforce-eager` without graphs.
            `VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0` switches the estimate off: graphs then take what lies
            outside the budget, and capture may run out of memory.
            """,
        since="""
            Measured since 0.18, subtracted by default since 0.20 (0.18 and 0.19 only with the variable set
            to 1). For the V2 model runner the estimate is zero up to 0.28.
            """,
        references="""
            `vllm/v1/worker/gpu_worker.py: determine_available_memory`,
            `vllm/v1/worker/gpu_model_runner.py: profile_cudagraph_memory`
            """,
    ),
)
_SWITCH = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"


def find(case: Case) -> Iterator[Finding]:
    """The finding where the estimate is subtracted and matters."""
    facts = case.reading.facts
    shares = facts.last("graph_equivalent", "graph_equivalent_short")
    estimate = _estimate(case)
    lack = shortage(case)
    inside = overflow(case, "profile")
    traced = estimating_graphs(case)
    if traced and inside:
        yield RULE.found(
            "Memory ran out while vLLM captured CUDA graphs to estimate their size.",
            "This trial run is not held back by gpu_memory_utilization.",
            evidence=(shown(inside), shown(traced)),
            advice=("Fewer capture sizes: --max-cudagraph-capture-size 64", "--enforce-eager", f"{_SWITCH}=0"),
        )
        return
    if not _subtracted(case) or (not estimate and shares is None):
        return
    left, actual = case.reading.size("available"), case.reading.size("graph_actual")
    unused = estimate - actual if estimate and actual is not None and actual >= 0 else 0
    if lack is not None:
        severity = _when_short(estimate, lack.missing, left)
    elif estimate and left and case.reading.came_up and unused > max(GIB // 2, left // 5):
        severity = Severity.WARNING
    elif left is None or (estimate and left > 0 and estimate >= left // 20 and estimate >= GIB // 4):
        severity = Severity.NOTE
    else:
        return
    took = f" The graphs took {show_bytes(actual)} in the end." if actual is not None and actual >= 0 else ""
    less = _in_shares(case)
    size = f"{show_bytes(estimate)} of the budget goes" if estimate else "Part of the budget goes"
    yield RULE.found(
        f"{size} to an estimate of CUDA graph memory{less}.",
        f"It is subtracted before the KV cache is sized.{took}"
        + (f" {show_bytes(left)} is left for the cache." if left is not None and left > 0 else ""),
        evidence=[shown(fact) for fact in (facts.last("graph_estimate", "graph_pool"), shares) if fact is not None],
        advice=_advice(case),
        severity=severity,
    )


def _estimate(case: Case) -> int | None:
    """Bytes of the estimate: printed, else worked out of the two utilisations and the card's total."""
    printed = case.reading.size("graph_estimate")
    if printed is not None:
        return printed
    pair, total = _pair(case), case.total_bytes
    return round((pair[0] - pair[1]) * total) if pair and total else None


def _pair(case: Case) -> tuple[float, float] | None:
    """The utilisation and what it stands for without the estimate."""
    fact = case.reading.facts.last("graph_equivalent", "graph_equivalent_short")
    share, equal = (fact.number("util"), fact.number("equivalent")) if fact else (None, None)
    return (share, equal) if share is not None and equal is not None and share > equal else None


def _in_shares(case: Case) -> str:
    pair = _pair(case)
    return f": --gpu-memory-utilization {short(pair[0])} stands for {short(pair[1])} without it" if pair else ""


def _subtracted(case: Case) -> bool:
    facts = case.reading.facts
    if facts.first("graph_estimate_off") or case.variable(_SWITCH) == "0":
        return False
    if facts.first("graph_equivalent", "graph_equivalent_short"):
        return True
    return bool(case.since("0.20.0")) and facts.first("reserved") is None


def _when_short(estimate: int | None, missing: int | None, left: int | None) -> Severity:
    """A warning where the estimate is what one request lacks, or a good part of what is left."""
    if estimate is None:
        return Severity.WARNING
    if missing is not None:
        return Severity.WARNING if estimate >= missing else Severity.NOTE
    decides = estimate >= GIB // 4 and (left is None or estimate + left > 0)
    return Severity.WARNING if decides else Severity.NOTE


def _advice(case: Case) -> Iterator[str]:
    suggested = case.reading.facts.number("suggested", "graph_restore")
    if suggested is not None and suggested <= 0.97:
        yield f"--gpu-memory-utilization {short(suggested)}"
    yield "Fewer capture sizes: a lower --max-cudagraph-capture-size"
    yield f"{_SWITCH}=0 (gives it to the cache; capture may then run out of memory)"
