"""KVR207: the GPU ran out of memory while CUDA graphs were captured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import (
    first,
    less_share,
    lower_share,
    pinned_bytes,
    served,
    share_flag,
    utilization_of,
)
from kvroom.findings.startup.oom import Oom, anatomy, defragment, ooms, profiles_graphs, weights_fill_it
from kvroom.units import GIB, MIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR207",
    "out-of-memory-in-capture",
    Severity.ERROR,
    "CUDA graphs are captured after the KV cache has been allocated, in what lies outside the budget.",
    explanation(
        what="""
            Reports an out-of-memory error while CUDA graphs are captured, or while their size is measured
            (`profile_cudagraph_memory`, since 0.18).
            """,
        why="""
            The KV cache takes all of the budget, so graphs live in total x (1 - utilisation) together with
            the CUDA context, NCCL and work spaces.
            Since 0.20 an estimate of the graphs is taken out of the cache, which may still be too low.
            The number of graphs depends on `max_num_seqs` and the capture sizes, not on the context length.
            The error often asks for a few MiB only: the card is full to the brim.
            """,
        example="""
            21.99 GiB x 0.98 leaves 0.44 GiB for everything that is not in the budget; graphs take 0.5 to 3
            GiB.
            """,
        cure="""
            Lower `--gpu-memory-utilization` by what the graphs take, or capture fewer of them: a lower
            `--max-num-seqs`, or `--max-cudagraph-capture-size` (0.11.1 and later, before
            `--cuda-graph-sizes`).
            `--enforce-eager` captures none and costs speed.
            """,
        since="""
            All releases with CUDA graphs.
            The estimate counts since 0.20; `VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0` switches it off.
            """,
        references="`vllm/v1/worker/gpu_model_runner.py: capture_model, profile_cudagraph_memory`",
    ),
)
_LARGE = 64 * MIB


def find(case: Case) -> Iterator[Finding]:
    """The finding for an out-of-memory error in capture, in the measurement of graphs, or by its looks."""
    measuring = profiles_graphs(case)
    if measuring is not None:
        found = ooms(case)
        yield RULE.found(
            "Out of memory while the size of the CUDA graphs was measured.",
            f"{anatomy(found[0]) if found else ''} The graphs are captured on trial before the KV cache exists, "
            "so --gpu-memory-utilization does not limit them.".strip(),
            evidence=(shown(measuring),),
            advice=first(
                (
                    _fewer(case),
                    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 (does not measure)",
                    "--enforce-eager (gives up CUDA graphs)",
                )
            ),
        )
        return
    for oom in ooms(case, "graph_capture"):
        size = f": {show_bytes(oom.wanted)} more did not fit" if oom.wanted is not None else ""
        size = size or (", as the start works without them" if oom.fact.id == "told_eager" else "")
        yield RULE.found(
            f"Out of memory while CUDA graphs were captured{size}.",
            " ".join(filter(None, (anatomy(oom), _outside(case)))),
            evidence=(shown(oom.fact),),
            advice=_advice(case, oom),
        )
        return
    for oom in ooms(case, "unknown"):
        if _full_to_the_brim(oom) and not served(case) and not weights_fill_it(case, oom):
            yield RULE.found(
                f"Out of memory over {show_bytes(oom.wanted or 0)}: the card was full, as it is in graph capture.",
                f"{anatomy(oom)} No line says where it happened; what follows the KV cache fails like this.",
                evidence=(shown(oom.fact),),
                advice=_advice(case, oom),
                severity=Severity.WARNING,
            )


def _full_to_the_brim(oom: Oom) -> bool:
    return oom.wanted is not None and oom.wanted <= _LARGE and (oom.free or 0) <= _LARGE and not oom.private


def _outside(case: Case) -> str:
    total, share = case.total_bytes, utilization_of(case)
    if total is None or share is None or pinned_bytes(case):
        return "The KV cache already fills the budget; graphs need memory outside of it."
    outside = show_bytes(total * (1 - share))
    return f"Utilisation {share:g} of {show_bytes(total)} leaves {outside} for graphs, CUDA context and work spaces."


def _fewer(case: Case) -> str | None:
    """The option that captures fewer graphs in this release."""
    sequences = case.whole("max_num_seqs")
    if case.since("0.11.1"):
        return "--max-cudagraph-capture-size 64"
    if sequences is not None and sequences <= 16:
        return None
    return f"--max-num-seqs {min(64, (sequences or 256) // 4)}"


def _advice(case: Case, oom: Oom) -> tuple[str, ...]:
    need = case.reading.size("graph_estimate") or max(oom.wanted or 0, GIB)
    share = less_share(case, need)
    pinned = pinned_bytes(case)
    room = share_flag(share) if share else lower_share(case)
    if pinned:
        room = f"--kv-cache-memory-bytes {pinned - need}" if pinned > 2 * need else "Drop --kv-cache-memory-bytes."
    others = oom.elsewhere
    stop = f"Stop the other programs: they hold {show_bytes(others)}." if others and others > GIB // 2 else None
    return first((stop, *defragment(case, oom), room, _fewer(case), "--enforce-eager (gives up CUDA graphs)"))
