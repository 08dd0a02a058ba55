"""KVR210: fewer state blocks than sequences on a model with recurrent state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import first, more_share, share_flag

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR210",
    "state-blocks-below-sequences",
    Severity.ERROR,
    "Every decoding sequence of this model holds a state block, and there are fewer blocks than sequences.",
    explanation(
        what="""
            Reports the check before graph capture that a model with Mamba, Gated DeltaNet or similar layers
            has as many cache blocks as `max_num_seqs`; in 0.18 and 0.19 the warning that larger graphs are
            left out.
            """,
        why="""
            A graph for n decoding sequences addresses n states, each in a block of its own.
            Blocks of such models are large, so that a cache for hundreds of thousands of tokens may have a few
            hundred of them, while `max_num_seqs` defaults to 256 or 1,024.
            """,
        example="""
            243 blocks and the default of 256 sequences: the start is refused, although 243 requests at once
            are more than most loads have.
            """,
        cure="""
            `--max-num-seqs` at or below the number of blocks.
            More memory for the cache adds blocks.
            """,
        since="""
            Refused since 0.20.0; graphs are capped in 0.18 and 0.19, and earlier releases have neither.
            """,
        references="`vllm/config/compilation.py: resolve_cudagraph_mode_and_sizes`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with both counts."""
    reading = case.reading
    error = reading.facts.first("err_state_blocks")
    if error is not None:
        sequences, blocks = error.whole("max_num_seqs"), error.whole("blocks")
        if reading.came_up or not sequences or blocks is None:
            return
        chosen = case.asked("max_num_seqs")
        origin = "" if chosen is None else " as given"
        yield RULE.found(
            f"{sequences:,} sequences (max_num_seqs{origin}) need a state block each; the cache has {blocks:,}.",
            f"{sequences - blocks:,} blocks are missing. Graph capture would address states outside of the cache.",
            evidence=(shown(error),),
            advice=first((f"--max-num-seqs {blocks}" if blocks else None, _raised(case, sequences, blocks))),
        )
        return
    capped = reading.facts.first("mamba_capped")
    if capped is not None:
        to, blocks = capped.whole("capped"), capped.whole("blocks")
        yield RULE.found(
            f"CUDA graphs are captured for up to {to or 0:,} sequences only: the cache has {blocks or 0:,} blocks.",
            "Larger batches run without a graph, and more sequences than blocks cannot decode at once.",
            evidence=(shown(capped),),
            advice=first((f"--max-num-seqs {blocks}" if blocks else None,)),
            severity=Severity.WARNING,
        )


def _raised(case: Case, sequences: int, blocks: int) -> str:
    """A utilisation that gives blocks for all ``sequences``, where the log tells what a block takes."""
    available = case.reading.size("available")
    if available and blocks:
        share = more_share(case, available * (sequences - blocks) // blocks)
        return share_flag(share) if share else ""
    return "Raise --gpu-memory-utilization if all these sequences are needed and the card has room."
