"""KVR143: prefix caching on a model with recurrent state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag
from kvroom.units import show_bytes
from kvroom.vllm.kv.pages import SpecKind

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR143",
    "prefix-caching-keeps-states",
    Severity.NOTE,
    "Prefix caching on a model with recurrent state keeps more state blocks for each sequence.",
    explanation(
        what="""
            Reports the Mamba cache modes `align` and `all` with the bytes that they add to one request.
            """,
        why="""
            Attention can reuse the blocks of a shared prefix as they are; a recurrent state has to be kept at
            the position where the prefix ends.
            Mode `align` holds one more state block per group and sequence, mode `all` one at every block of
            the context.
            """,
        example="""
            Qwen3-Next-80B at 262144 tokens: 488 blocks a request instead of 485.
            With short contexts the share is larger: Nemotron-H-8B at 8192 tokens goes from 180 to 126
            requests.
            """,
        cure="`--no-enable-prefix-caching` where prompts share no prefixes.",
        since="""
            Mode `align` since vLLM 0.15; prefix caching is on by default for such models since 0.27 or 0.28.
            Mode `all` is gone since 0.32.
            """,
        references="`vllm/v1/kv_cache_interface.py: MambaSpec.max_memory_usage_bytes`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding with the bytes that a sequence holds more than with prefix caching off."""
    settings, layout = prediction.settings, prediction.layout
    if settings is None or layout is None or not layout.has_states:
        return
    if not settings.enable_prefix_caching or settings.mamba_cache_mode == "none":
        return
    groups = [group.spec for group in layout.groups if group.spec.kind is SpecKind.MAMBA]
    if any(spec.grows for spec in groups):
        extra = "a state at every block of the context"
    else:
        blocks = len(groups)
        size = show_bytes(blocks * layout.bytes_per_block)
        extra = f"{blocks} more state block{'' if blocks == 1 else 's'} ({size})"
    yield RULE.found(
        f"Prefix caching in mode {settings.mamba_cache_mode} costs each sequence {extra}.",
        evidence=(flag("enable_prefix_caching"),),
        advice=("--no-enable-prefix-caching if prompts share no prefixes.",),
    )
