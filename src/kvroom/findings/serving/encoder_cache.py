"""KVR308: an image or video is larger than the encoder cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR308",
    "encoder-cache-too-small",
    Severity.ERROR,
    "One image or video makes more embeddings than the encoder cache holds.",
    explanation(
        what="""
            Compares the tokens of a refused multimodal item with the encoder cache that was set aside at the
            start.
            """,
        why="""
            The encoder cache holds whole items.
            Its size is the larger of `max_num_batched_tokens` and the largest item that vLLM expects of the model,
            which may be smaller than what a request sends.
            Only such requests are refused; the server goes on.
            """,
        example="""
            An image of 6,042 tokens against a cache of 4,800.
            """,
        cure="""
            Raise `--max-num-batched-tokens` to at least the item's tokens, state the size to expect with
            `--limit-mm-per-prompt '{"image": {"count": 1, "width": ..., "height": ...}}'`, or send smaller images.
            The cache grows the profile run's peak, so the KV cache becomes a little smaller.
            """,
        since="Refused with this message since 0.16.",
        references="`vllm/v1/core/encoder_cache_manager.py: compute_mm_encoder_budget`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the largest refused item; the server survives, so it is no error where it is seen to."""
    refused = sorted(case.reading.facts.all("encoder_item"), key=lambda fact: fact.whole("item") or 0)
    if not refused:
        return
    fact = refused[-1]
    item, cache = fact.whole("item"), fact.whole("cache")
    if item is None or cache is None:
        return
    goes_on = case.reading.came_up or case.reading.load.count > 0
    enough = -(-item // 1024) * 1024
    yield RULE.found(
        f"An item of {item:,} tokens is larger than the encoder cache of {cache:,} tokens.",
        f"{item - cache:,} tokens are missing. The request is refused, and every one like it; the others are served.",
        evidence=(shown(fact),),
        advice=(
            f"--max-num-batched-tokens {enough}",
            '--limit-mm-per-prompt \'{"image": {"count": 1, "width": 2048, "height": 2048}}\''
            " (the largest image to expect)",
            "Send smaller images.",
        ),
        severity=Severity.WARNING if goes_on else None,
    )
