"""KVR144: --block-size is not the block size that runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR144",
    "block-size-overridden",
    Severity.NOTE,
    "vLLM replaces --block-size where the attention backend or recurrent layers need another one.",
    explanation(
        what="Compares `--block-size` with the block size that the KV cache is planned with.",
        why="""
            Some kernels take one size only, and on hybrids an attention block has to be as large as a
            recurrent state.
            A smaller block than that is raised without an error.
            """,
        example="`--block-size 16` on Qwen3-Next: blocks of 544 tokens.",
        cure="Leave out `--block-size`.",
        since="Hybrids since vLLM 0.10; backends' own sizes in every release.",
        references="`vllm/platforms/interface.py: update_block_size_for_backend`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the written size is not used."""
    asked, layout = prediction.setup.args.block_size, prediction.layout
    if asked is None or layout is None or layout.block_size == asked or not layout.groups:
        return
    yield RULE.found(
        f"--block-size {asked} becomes {layout.block_size} tokens here.",
        evidence=(flag("block_size", asked),),
        advice=("Drop --block-size.",),
    )
