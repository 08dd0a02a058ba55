"""KVR227: a release that charges other processes' memory to this instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import short, shortage, utilization
from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR227",
    "neighbour-counted",
    Severity.WARNING,
    "This release counts memory that other processes hold on the card as its own.",
    explanation(
        what="""
            Reports a launch with a small utilisation that has no room for its cache, on a release whose
            measurement does not tell its own memory from that of others.
            """,
        why="""
            There the utilisation is no share for this instance: everything in use on the device is
            subtracted from it. A second instance with 0.4 beside one that holds 0.4 has nothing left.
            """,
        example="""
            vLLM 0.8.5 with `--gpu-memory-utilization 0.4` on a card where another server holds 40 %:
            no memory for the cache blocks, and the same flags start with `VLLM_USE_V1=0`.
            """,
        cure="""
            A utilisation above what the others hold, by as much as this instance needs; or a release that
            measures its own share only (0.9.2 and later, 0.6.6 on the V0 engine).
            """,
        since="0.2.5, 0.6.4, and the V1 engine of 0.8.0 to 0.9.0.",
        references="`vllm/worker/worker.py: determine_num_available_blocks`, `vllm/v1/worker/gpu_worker.py`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding for nothing left at a small utilisation that should have been enough for the weights."""
    lack, share = shortage(case), utilization(case)
    v1 = case.between("0.8.0", "0.9.1") and case.reading.engine != "V0"
    if lack is None or not lack.nothing or share is None or share >= 0.6:
        return
    if not (v1 or case.between("0.2.5", "0.2.6") or case.between("0.6.4", "0.6.5")):
        return
    weights, total = _weights(case), case.total_bytes
    budget = total * share if total else None
    if weights and budget and weights > budget * 0.8:
        return
    shape = case.prediction.setup.shape if case.prediction is not None else None
    if shape is not None and shape.vision is not None:
        return
    own = f" The weights take {show_bytes(weights)} of {show_bytes(budget)}." if weights and budget else ""
    advice = ["A --gpu-memory-utilization above what the other processes hold plus what this model needs"]
    if v1:
        advice.append("VLLM_USE_V1=0 (counts its own memory only)")
    yield RULE.found(
        f"vLLM {case.release} charges what other processes hold to this instance, and {short(share)} of the card "
        "is used up.",
        f"If another process holds memory on this card, the utilisation has to cover that too.{own}",
        evidence=(shown(lack.fact), Evidence(f"--gpu-memory-utilization {short(share)}")),
        advice=(*advice, "A release from 0.9.2 on, which leaves other processes out"),
    )


def _weights(case: Case) -> int | None:
    logged = case.reading.size("weights")
    ledger = case.prediction.ledger if case.prediction is not None else None
    return logged if logged is not None else ledger.weights.expected if ledger is not None else None
