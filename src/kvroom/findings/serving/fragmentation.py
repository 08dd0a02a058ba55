"""KVR307: there is enough memory, but not in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.serving.common import in_pieces, segments
from kvroom.findings.startup.oom import ooms
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR307",
    "fragmented-memory",
    Severity.WARNING,
    "PyTorch holds enough unused memory for the allocation that failed, but in pieces.",
    explanation(
        what="""
            Compares what an out-of-memory error asked for with what PyTorch had "reserved but unallocated", and
            with what the card had free.
            """,
        why="""
            PyTorch keeps freed memory in blocks and hands out parts of them.
            After many batches of different sizes there is enough in sum and no block is large enough.
            Expandable segments let a block grow in place, so that free pieces join up.
            """,
        example="""
            258 MiB asked for, 23.81 MiB free, 453.39 MiB reserved but unallocated.
            """,
        cure="""
            `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` in the environment of the server; newer PyTorch
            calls it `PYTORCH_ALLOC_CONF` and reads the old name as well.
            If it is set already, memory is simply short: lower `--gpu-memory-utilization`.
            """,
        since="""
            All releases.
            Not together with sleep mode before 0.20.1, nor with a KV connector since 0.21: vLLM refuses that.
            """,
        references="PyTorch's notes on CUDA memory; `vllm/device_allocator/cumem.py`, `vllm/config/vllm.py`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding where the failed allocation would have fitted."""
    for oom in ooms(case):
        pieces = in_pieces(oom)
        if oom.wanted is None or pieces is None:
            continue
        where = "reserved by PyTorch and unused" if pieces == oom.fragments else "free"
        yield RULE.found(
            f"{show_bytes(oom.wanted)} was asked for and {show_bytes(pieces)} was {where}, but not in one piece.",
            "Memory that was freed in small parts cannot be joined, unless PyTorch's segments may grow.",
            evidence=(shown(oom.fact),),
            advice=(segments(case, oom) or _otherwise(case),),
        )
        return


def _otherwise(case: Case) -> str:
    """What is left where this launch may not have expandable segments."""
    what = "a KV connector" if case.setting("kv_transfer_config") else "sleep mode before 0.20.1"
    return f"A slightly lower --gpu-memory-utilization: expandable segments do not go with {what}."
