"""KVR223: slots for LoRA adapters take memory before any adapter is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument, overflow, shortage
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.values import whole_number
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR223",
    "lora-slots",
    Severity.WARNING,
    "--enable-lora reserves room for max_loras adapters of the largest rank beside every layer.",
    explanation(
        what="Reports a launch with LoRA that ran short of memory, or whose adapter slots are large.",
        why="""
            For every linear layer that may be adapted vLLM allocates both matrices for `max_loras` adapters of
            rank `max_lora_rank`, however small or few the adapters are that come later.
            They count as weights. The profile run has dummy adapters in it too.
            """,
        example="""
            An 8B Llama with `--max-loras 8 --max-lora-rank 256` reserves about 10 GiB; with one slot of rank
            16 it is below 0.1 GiB.
            """,
        cure="`--max-lora-rank` at the largest rank in use, `--max-loras` at the adapters used in one batch.",
        since="All releases. `max_loras` is 1 and `max_lora_rank` 16 unless given.",
        references="`vllm/lora/layers`, `vllm/lora/models.py: LoRAModelManager` (later `vllm/lora/model_manager.py`)",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding where memory ran short, or where the slots are known to take a good deal."""
    if not _enabled(case):
        return
    lack = shortage(case)
    fact = lack.fact if lack else overflow(case) or case.reading.facts.first("err_state_blocks")
    loras = whole_number(argument(case, "max_loras")) or 1
    rank = whole_number(argument(case, "max_lora_rank")) or 16
    size = _slots(case, loras, rank)
    if fact is None and (size is None or size < GIB):
        return
    large = size >= GIB // 4 if size is not None else loras * rank > 16
    much = f", about {show_bytes(size)}," if size else ""
    yield RULE.found(
        f"LoRA reserves {loras:,} slot{'s' if loras != 1 else ''} of rank {rank}{much} in every adapted layer.",
        "The slots are allocated with the weights, at the largest rank, before an adapter is loaded; "
        "the profile run carries dummy adapters as well.",
        evidence=(shown(fact),) if fact else (),
        advice=[text for text, useful in _advice(loras, rank) if useful],
        severity=Severity.WARNING if fact and large else Severity.NOTE,
    )


def _enabled(case: Case) -> bool:
    return (
        argument(case, "enable_lora") in {True, "True", "true"} or case.reading.facts.first("lora_buffers") is not None
    )


def _advice(loras: int, rank: int) -> Iterator[tuple[str, bool]]:
    yield "--max-loras 1 (or as many as one batch needs)", loras > 1
    yield "The largest rank of your adapters as --max-lora-rank.", rank > 8
    yield "Leave out --enable-lora where no adapter is served.", True


def _slots(case: Case, loras: int, rank: int) -> int | None:
    """About what the slots take on one GPU, for dense models: A whole, B cut over the ranks; 2 bytes a number."""
    if case.prediction is None:
        return None
    shape, args = case.prediction.setup.shape, case.prediction.setup.args
    if shape.is_moe or shape.has_state or not (shape.hidden_size and shape.intermediate_size and shape.heads):
        return None
    hidden, inner, tp = shape.hidden_size, shape.intermediate_size, args.tensor_parallel_size
    queries, keys = shape.heads * shape.head_size, 2 * shape.kv_heads * shape.head_size
    into = 3 * hidden + queries // tp + 2 * hidden + inner // tp
    out = (queries + keys) // tp + hidden + 2 * inner // tp + hidden
    return (into + out) * rank * 2 * loras * shape.layers // args.pipeline_parallel_size
