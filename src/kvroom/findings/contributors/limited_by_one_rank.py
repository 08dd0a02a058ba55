"""KVR228: one GPU has less room than the others, and the pool follows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument
from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.values import whole_number
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR228",
    "limited-by-one-rank",
    Severity.WARNING,
    "All GPUs of a launch get as many blocks as the one with the least room can hold.",
    explanation(
        what="Compares the memory for the KV cache that the ranks of one engine print.",
        why="""
            A block exists on every rank, so the number of blocks is the smallest over the ranks; what the
            others have left over stays unused.
            Ranks differ by an uneven split of layers over pipeline stages (the last also holds the output
            head), by different cards, or by other processes on one of them.
            """,
        example="""
            Two pipeline stages with 12.3 and 20.1 GiB left: the second could hold far more blocks than the
            first, and holds as many.
            """,
        cure="""
            With pipeline stages move layers off the fuller one: `VLLM_PP_LAYER_PARTITION=30,34` (one number
            a stage, their sum the number of layers). With tensor parallelism use equal cards and free the
            poorest.
            """,
        since="V1. V0 takes the minimum too.",
        references="""
            `vllm/v1/core/kv_cache_utils.py: get_kv_cache_configs`, `vllm/distributed/utils.py: get_pp_indices`
            """,
    ),
)
_RANK = re.compile(r"(?:Worker|VllmWorker|RayWorkerWrapper)\w*")
_REPLICA = re.compile(r"DP\d+")


def find(case: Case) -> Iterator[Finding]:
    """The finding where the ranks of one engine differ by more than two percent."""
    yield from _counted_less(case)
    found = case.reading.measured.get("available")
    ranks = {name: size for name, size in (found.ranks if found else {}).items() if _RANK.match(name)}
    if found is None or len(ranks) < 2 or len({tuple(_REPLICA.findall(name)) for name in ranks}) > 1:
        return
    poor, rich = min(ranks, key=lambda name: ranks[name]), max(ranks, key=lambda name: ranks[name])
    least, most = ranks[poor], ranks[rich]
    if most <= 0 or most - least <= most / 50:
        return
    stages = (whole_number(argument(case, "pipeline_parallel_size")) or 1) > 1 or any("PP" in name for name in ranks)
    why = _why(case, poor, rich, stages)
    yield RULE.found(
        f"{poor} has {show_bytes(least)} for the KV cache, {rich} {show_bytes(most)}: the pool follows the poorest.",
        f"Every rank gets the same number of blocks.{why}",
        evidence=(Evidence(f"Available KV cache memory: {found.printed} GiB ({poor})", found.line),),
        advice=(
            "VLLM_PP_LAYER_PARTITION with fewer layers for the poorest stage"
            if stages
            else "Equal cards, and no other process on the poorest",
        ),
        severity=Severity.WARNING if most - least > max(most / 10, GIB // 2) else Severity.NOTE,
    )


def _counted_less(case: Case) -> Iterator[Finding]:
    """The note where one rank's size is printed and the pool counts fewer blocks than that size holds."""
    found, layout = case.reading.measured.get("available"), case.prediction.layout if case.prediction else None
    tokens = case.reading.facts.last("tokens", "err_tokens", "err_tokens_short")
    count = tokens.whole("tokens") if tokens else None
    if found is None or found.ranks or layout is None or not count or len(layout.groups) != 1:
        return
    if (whole_number(argument(case, "tensor_parallel_size")) or 1) == 1 or not layout.bytes_per_block:
        return
    held = count // layout.block_size * layout.bytes_per_block
    if not found.value * 0.5 < held < found.value * 0.99:
        return
    yield RULE.found(
        f"The pool of {count:,} tokens takes {show_bytes(held)}, and {show_bytes(found.value)} are printed for it.",
        "The log shows the size of one rank; another has less, and every rank gets the same number of blocks.",
        evidence=(shown(tokens),) if tokens else (),
        advice=("Equal cards, and no other process on the poorest",),
        severity=Severity.NOTE if held > found.value * 0.9 else Severity.WARNING,
    )


def _why(case: Case, poor: str, rich: str, stages: bool) -> str:
    weights = case.reading.measured.get("weights")
    held: Mapping[str, int] = weights.ranks if weights else {}
    if poor not in held or rich not in held:
        return ""
    here, there = held[poor], held[rich]
    if abs(here - there) <= max(here, there) / 50:
        return f" Their weights are equal ({show_bytes(here)}), so the cards or what else runs on them differ."
    split = " by the split of the layers" if stages else ""
    return f" Their weights differ{split}: {show_bytes(here)} and {show_bytes(there)}."
