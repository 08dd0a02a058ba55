"""KVR141: fewer blocks than sequences on a model with recurrent state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR141",
    "state-blocks-below-max-num-seqs",
    Severity.ERROR,
    "With recurrent state every decoding sequence holds a block, and there are too few of them.",
    explanation(
        what="""
            Compares the number of blocks with `max_num_seqs` for models that have Mamba, Gated DeltaNet or
            similar layers, where full CUDA graphs are captured.
            """,
        why="""
            A decode graph for a batch of n sequences addresses n states, one in each block.
            On hybrids a block is large (hundreds of tokens), so a small pool has few of them, while
            `max_num_seqs` defaults to 256 or 1024.
            """,
        example="""
            A pool of 145 blocks is 108,589 tokens of context on a Qwen3.6-27B-class hybrid, and the default
            `max_num_seqs` of 256 does not start.
            """,
        cure="""
            `--max-num-seqs` at or below the number of blocks.
            That many long sequences would not fit anyway.
            """,
        since="""
            Refused since vLLM 0.20.0.
            0.18 and 0.19 leave out the larger graphs with a warning; earlier releases address states outside
            the pool and may crash during capture.
            """,
        references="`vllm/config/compilation.py: resolve_cudagraph_mode_and_sizes`, vLLM issue 34094",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding with the number of blocks; how grave it is depends on the release."""
    pool, layout, settings = prediction.pool, prediction.layout, prediction.settings
    if pool is None or layout is None or settings is None or not layout.has_states:
        return
    if not 0 < pool.num_blocks < settings.max_num_seqs or "FULL" not in settings.cudagraph_mode:
        return
    rules = prediction.rules
    refused = rules["kv_mamba_blocks_text"] is not None
    if refused:
        fate = "vLLM refuses to start"
    elif rules["kv_mamba_caps_graphs_text"] is not None:
        fate = "larger batches run without a CUDA graph"
    else:
        fate = "graph capture may address states outside the pool and crash"
    yield RULE.found(
        f"{pool.num_blocks:,} blocks for max_num_seqs {settings.max_num_seqs:,}: {fate}.",
        evidence=(flag("max_num_seqs", settings.max_num_seqs),),
        advice=(f"--max-num-seqs {pool.num_blocks}",),
        severity=None if refused else Severity.WARNING,
    )
