"""KVR306: a server runs out of GPU memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.serving.common import in_pieces, lower_share, segments, served_ooms
from kvroom.findings.startup.common import first
from kvroom.findings.startup.oom import anatomy
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.findings.startup.oom import Oom

RULE = Rule(
    "KVR306",
    "out-of-memory-while-serving",
    Severity.ERROR,
    "The server came up and then ran out of GPU memory.",
    explanation(
        what="""
            Takes PyTorch's out-of-memory error apart: what was asked for, what was free, what this process and
            others held, how much PyTorch had in use, reserved and in the pools of CUDA graphs.
            """,
        why="""
            The KV cache is allocated once at the start and does not grow.
            What grows is everything that the profile run did not see: larger intermediate results of a real
            batch, buffers that a kernel makes at its first use, log probabilities, images, KV connectors, CUDA
            graphs before 0.20, other programs on the card.
            All of it has to live in the part of the card that `--gpu-memory-utilization` leaves free.
            """,
        example="""
            52 MiB asked for, 42.06 MiB free: at 0.94 of a 24 GB card 1.4 GiB was meant to be left, and something
            else holds it.
            """,
        cure="""
            Lower `--gpu-memory-utilization` by what was missing and a little more: this is the case in which
            lowering helps.
            Fewer sequences or batched tokens lower the peak itself.
            """,
        since="""
            All releases.
            From 0.26 to 0.28 the second model runner leaves CUDA graphs out of its estimate;
            `VLLM_USE_V2_MODEL_RUNNER=0` brings back the first one.
            """,
        references="`vllm/v1/worker/gpu_worker.py: determine_available_memory`, PyTorch's notes on CUDA memory",
    ),
)
_OTHERS = GIB // 2
"""Held by others above this, it is no CUDA context or rounding."""
_SECOND_RUNNER = re.compile(r"\bMRv2\b|\bV2 model runner\b|\bmodel runner v2\b", re.IGNORECASE)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the anatomy of the error, and by how much to lower the budget."""
    for oom in served_ooms(case)[:1]:
        yield RULE.found(
            f"Out of GPU memory while serving: {_missing(oom)}.",
            f"{anatomy(oom)} The KV cache does not grow; what grew lives outside of the budget.".strip(),
            evidence=(shown(oom.fact),),
            advice=first(_advice(case, oom)),
        )
        return
    told = case.reading.facts.first("told_serving_oom")
    if told is not None and not case.reading.facts.first("oom", "oom_old", "oom_driver"):
        yield RULE.found(
            "Out of GPU memory while serving.",
            "The KV cache does not grow; what grew lives outside of the budget.",
            evidence=(shown(told),),
            advice=("Lower --gpu-memory-utilization by 0.02.", *_lighter(case)),
        )


def _missing(oom: Oom) -> str:
    if oom.wanted is None:
        return "an allocation failed"
    if oom.free is None or oom.free >= oom.wanted:
        return f"an allocation of {show_bytes(oom.wanted)} failed"
    return f"{show_bytes(oom.wanted - oom.free)} was missing for an allocation of {show_bytes(oom.wanted)}"


def _advice(case: Case, oom: Oom) -> Iterator[str]:
    if in_pieces(oom) and (setting := segments(case, oom)):
        yield setting
    if oom.elsewhere and oom.elsewhere > _OTHERS:
        yield f"Stop the other programs on the card, which hold {show_bytes(oom.elsewhere)}."
    if _second_runner(case, oom):
        yield "VLLM_USE_V2_MODEL_RUNNER=0 (the second model runner measures too little in this release)"
    yield lower_share(case, oom)
    if case.setting("kv_transfer_config") or case.reading.facts.first("lmcache"):
        yield "Leave more for the KV connector, whose buffers are outside of the budget, or make them smaller."
    yield from _lighter(case)


def _second_runner(case: Case, oom: Oom) -> bool:
    """Whether the log shows the second model runner in a release in which it under-counts."""
    if case.since("0.26.0") is not True or case.since("0.29.0"):
        return False
    return case.reading.facts.first("runner_v2") is not None or _SECOND_RUNNER.search(oom.fact.text) is not None


def _lighter(case: Case) -> Iterator[str]:
    """Smaller batches, with the values of this launch."""
    tokens, sequences = case.whole("max_num_batched_tokens"), case.whole("max_num_seqs")
    if tokens is None or tokens > 2048:
        yield "--max-num-batched-tokens 2048"
    if sequences is None or sequences > 8:
        yield f"--max-num-seqs {sequences // 2}" if sequences else "A lower --max-num-seqs."
    if not case.setting("enforce_eager") and case.since("0.20.0") is False:
        yield "--enforce-eager (CUDA graphs are outside of the budget in this release)"
