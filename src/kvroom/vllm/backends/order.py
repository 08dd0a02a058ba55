"""The order in which releases since 0.11.1 try the backends, and the block sizes that they bring.

Mirrors vllm/platforms/cuda.py: _get_backend_priorities and check_and_update_config, and
platforms/interface.py: update_block_size_for_backend.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from kvroom.vllm.backends.facts import block_base, facts, kernel_blocks, quantized
from kvroom.vllm.backends.question import Question
from kvroom.vllm.rules import Rules

DEFAULT_BLOCK = 16
_FEW_HEADS = 16
"""At this many query heads a GPU, FlashMLA pads so much that FlashInfer goes first."""


@lru_cache(maxsize=1024)
def order(rules: Rules, ask: Question) -> tuple[str, ...]:
    """The backends that vLLM tries for ``ask``, best first."""
    if not ask.layer.mla:
        table = rules["backend.order.attention"]
        first = table.get("mm_prefix", {}).get(str(ask.major), []) if ask.mm_prefix else []
        return (*first, *_row(table, ask))
    sparse = _row(rules["backend.order.sparse"], ask)
    if "quantized" in sparse and quantized(rules, ask):
        tail = sparse["quantized"]
    elif "few_heads" in sparse and ask.heads <= _FEW_HEADS:
        tail = sparse["few_heads"]
    elif "no_rope" in sparse and ask.layer.head_size == 512:
        tail = sparse["no_rope"]
    else:
        tail = sparse["else"]
    return (*_row(rules["backend.order.mla"], ask), *tail)


def _row(table: dict[str, Any], ask: Question) -> Any:
    return table.get(str(ask.major), table["else"])


class Hook(NamedTuple):
    """What releases to 0.17 decide before any backend is validated."""

    forced: str | None
    block_size: int


def hook(rules: Rules, ask: Question, asked: str | None) -> Hook:
    """The block size, and the backend that latent attention is handed to as if it had been asked for."""
    rule, block = rules["backend.mla_hook"], ask.block_size or DEFAULT_BLOCK
    if not ask.layer.mla or not rule["blocks"]:
        return Hook(None, block)
    expected, forced = asked, None
    if asked is None:
        exact = rule.get("on_10.0") if ask.capability == (10, 0) else None
        family = rule.get("on_10") if ask.major == 10 and not ask.layer.sparse else None
        expected = forced = exact or family
        if expected == "FLASHINFER_MLA" and ask.nope not in facts(rules, expected).nope["sizes"]:
            expected, forced = "CUTLASS_MLA", None
        if expected is None:
            expected = "FLASHMLA"
    flashmla = ask.major == 9 and "flashmla" not in ask.without
    sizes = rule["blocks"].get(expected, [])
    if expected == "FLASHMLA" and not flashmla:
        sizes = []
    if sizes and not any(_allows(size, block) for size in sizes):
        block = block_base(sizes[-1])
    if ask.layer.sparse and "sparse" in rule:
        block = rule["sparse"]
    return Hook(forced, block)


def _allows(size: int | str, block: int) -> bool:
    return block % block_base(size) == 0 if isinstance(size, str) else block == size


def preferred_block(rules: Rules, name: str, ask: Question) -> int:
    """Tokens of a block that backend ``name`` gets when the user asks for none (since 0.18)."""
    if ask.block_size is not None:
        return ask.block_size
    bases = [block_base(block) for block in kernel_blocks(rules, name, ask)]
    return DEFAULT_BLOCK if any(DEFAULT_BLOCK % base == 0 for base in bases) else min(bases)


def hybrid_alignment(rules: Rules, name: str, asked: str | None, ask: Question, block_size: int) -> int:
    """Tokens of which a hybrid model's block must be a multiple, before its own rules for states."""
    rule = rules["backend.hybrid_alignment"]
    if "kernel" in rule:
        least = rule.get("mla_least", 1) if ask.layer.mla else 1
        return max(min(map(block_base, kernel_blocks(rules, name, ask))), block_size, least)
    if ask.layer.mla and "mla" in rule:
        return int(rule["cutlass_mla"] if asked == "CUTLASS_MLA" else rule["mla"])
    if "heads_256_on_10" in rule and ask.major == 10 and ask.layer.head_size == 256:
        return int(rule["heads_256_on_10"] if asked in {None, "FLASHINFER"} else rule["attention"])
    return int(rule["attention"])
